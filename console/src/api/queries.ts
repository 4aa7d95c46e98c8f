import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { api, unwrap, unwrapVersioned } from "./client";
import { isLive, serverNow } from "./connection";
import type { paths } from "./schema";
import type { SessionType, Status } from "./statuses";

// How often open pages poll: without the event stream, and with it, for data that has no events.
const POLL_MS = 5000;
const SLOW_POLL_MS = 30_000;

export const pollMs = () => (isLive() ? SLOW_POLL_MS : POLL_MS);

const PAGE = 500;

/** All items of a list, page by page. */
async function everyPage<T>(
  page: (query: { limit: number; cursor?: string }) => Promise<{ items: T[]; next?: string | null }>,
): Promise<T[]> {
  const items: T[] = [];
  for (let cursor: string | null | undefined; ; ) {
    const found = await page({ limit: PAGE, ...(cursor ? { cursor } : {}) });
    items.push(...found.items);
    cursor = found.next;
    if (!cursor) {
      return items;
    }
  }
}

export const groupsQuery = queryOptions({
  queryKey: ["groups"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/groups", { params: { query } }))),
});

/** The properties of each runtime, which change only with the manager's version. */
export const runtimesQuery = queryOptions({
  queryKey: ["runtimes"],
  queryFn: async () => (await unwrap(api.GET("/v1/runtimes"))).items,
  staleTime: Number.POSITIVE_INFINITY,
});

export const agentsQuery = queryOptions({
  queryKey: ["agents"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/agents", { params: { query } }))),
});

export const agentQuery = (id: string) =>
  queryOptions({
    queryKey: ["agents", id],
    queryFn: () => unwrap(api.GET("/v1/agents/{id}", { params: { path: { id } } })),
  });

export const agentStatsQuery = (id: string) =>
  queryOptions({
    queryKey: ["agents", id, "stats"],
    queryFn: () => unwrap(api.GET("/v1/agents/{id}/stats", { params: { path: { id } } })),
  });

/** What all nodes and their devices do now. It has no events. */
export const allStatsQuery = queryOptions({
  queryKey: ["agent-stats"],
  queryFn: async () => (await unwrap(api.GET("/v1/stats/agents"))).items,
  refetchInterval: 15_000,
});

export const agentHistoryQuery = (id: string) =>
  queryOptions({
    queryKey: ["agents", id, "history"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/agents/{id}/history", { params: { path: { id } } }))).items,
  });

export const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: () => unwrap(api.GET("/v1/overview")),
});

/** The agents of a group, or one agent, with the current users of each device. */
export const occupancyQuery = (query: { resource_group?: string; agent?: string }) =>
  queryOptions({
    queryKey: ["occupancy", query],
    queryFn: () =>
      everyPage((page) => unwrap(api.GET("/v1/occupancy", { params: { query: { ...query, ...page } } }))),
  });

const RANGES_S = { "6h": 6 * 3600, "1d": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400, "1y": 365 * 86_400 };
export type HistoryRange = keyof typeof RANGES_S;
export const historyRanges = Object.keys(RANGES_S) as HistoryRange[];

/** What was in use and what waited, until now on the manager's clock. */
export const occupancyHistoryQuery = (range: HistoryRange, group?: string) =>
  queryOptions({
    queryKey: ["history", range, group],
    queryFn: () => {
      const from = new Date(serverNow() - RANGES_S[range] * 1000).toISOString();
      const query = { from, ...(group === undefined ? {} : { resource_group: group }) };
      return unwrap(api.GET("/v1/occupancy/history", { params: { query } }));
    },
    staleTime: 30_000,
    refetchInterval: 60_000,
  });

const LOAD_RANGES_S = { "1h": 3600, "6h": 6 * 3600, "1d": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400 };
export type LoadRange = keyof typeof LOAD_RANGES_S;
export const loadRanges = Object.keys(LOAD_RANGES_S) as LoadRange[];
const loadFrom = (range: LoadRange) => new Date(serverNow() - LOAD_RANGES_S[range] * 1000).toISOString();
// Samples are taken twice a minute.
const LOAD_OPTIONS = { staleTime: 15_000, refetchInterval: 30_000, placeholderData: keepPreviousData };

/** The load of an endpoint over time, until now on the manager's clock. */
export const endpointLoadQuery = (name: string, range: LoadRange) =>
  queryOptions({
    queryKey: ["load", "endpoint", name, range],
    queryFn: () => {
      const params = { path: { name }, query: { from: loadFrom(range) } };
      return unwrap(api.GET("/v1/endpoints/{name}/load", { params }));
    },
    ...LOAD_OPTIONS,
  });

/** The load of a node and its devices over time. */
export const agentLoadQuery = (id: string, range: LoadRange) =>
  queryOptions({
    queryKey: ["load", "agent", id, range],
    queryFn: () => {
      const params = { path: { id }, query: { from: loadFrom(range) } };
      return unwrap(api.GET("/v1/agents/{id}/load", { params }));
    },
    ...LOAD_OPTIONS,
  });

export type SessionSort = NonNullable<
  NonNullable<paths["/v1/sessions"]["get"]["parameters"]["query"]>["sort"]
>;

export interface SessionFilter {
  status?: Status[];
  resource_group?: string;
  type?: SessionType;
  name?: string;
  search?: string;
  sort?: SessionSort;
  endpoint?: string;
  elements?: boolean;
  limit?: number;
}

export const sessionPage = (filter: SessionFilter, cursor?: string) =>
  unwrap(api.GET("/v1/sessions", { params: { query: { limit: 50, ...filter, cursor } } }));

export const sessionsQuery = (filter: SessionFilter) =>
  queryOptions({ queryKey: ["sessions", "list", filter], queryFn: () => sessionPage(filter) });

export const sessionQuery = (ref: string) =>
  queryOptions({
    queryKey: ["sessions", ref],
    queryFn: () => unwrap(api.GET("/v1/sessions/{ref}", { params: { path: { ref } } })),
  });

export const historyQuery = (ref: string) =>
  queryOptions({
    queryKey: ["sessions", ref, "history"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/sessions/{ref}/history", { params: { path: { ref } } }))).items,
  });

export const whyQuery = (ref: string) =>
  queryOptions({
    queryKey: ["sessions", ref, "why"],
    queryFn: () => unwrap(api.GET("/v1/sessions/{ref}/why", { params: { path: { ref } } })),
  });

/** When a session ends because nobody uses it. */
export const idleQuery = (ref: string) =>
  queryOptions({
    queryKey: ["sessions", ref, "idle"],
    queryFn: () => unwrap(api.GET("/v1/sessions/{ref}/idle", { params: { path: { ref } } })),
  });

export const statsQuery = (ref: string, spans: "minutes" | "hours") =>
  queryOptions({
    queryKey: ["sessions", ref, "stats", spans],
    queryFn: () =>
      unwrap(
        api.GET("/v1/sessions/{ref}/stats", { params: { path: { ref }, query: { spans, limit: 200 } } }),
      ),
    refetchInterval: 30_000,
  });

export const appsQuery = (ref: string) =>
  queryOptions({
    queryKey: ["sessions", ref, "apps"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/sessions/{ref}/apps", { params: { path: { ref } } }))).items,
  });

export interface PipelineFilter {
  search?: string;
  sort?: "name" | "-name" | "created_at" | "-created_at";
}

export const pipelinePage = (filter: PipelineFilter, cursor?: string) =>
  unwrap(
    api.GET("/v1/pipelines", { params: { query: { limit: 50, ...filter, ...(cursor ? { cursor } : {}) } } }),
  );

// Large pipelines have long answers.
const MANY_STEPS = 1000;

/** A pipeline with its steps. Their sessions have events, but most events are about other sessions, so it is
 * polled, and once it has ended, only as rarely as data without events. */
export const pipelineQuery = (ref: string) =>
  queryOptions({
    queryKey: ["pipelines", ref],
    queryFn: () => unwrap(api.GET("/v1/pipelines/{ref}", { params: { path: { ref } } })),
    refetchInterval: ({ state: { data } }) => {
      const { pending = 0, running = 0 } = data?.counts ?? {};
      if (data && pending + running === 0) {
        return SLOW_POLL_MS;
      }
      return (data?.steps ?? []).length > MANY_STEPS ? 3 * POLL_MS : POLL_MS / 2;
    },
  });

/** Its picture. `shown`: a text that changes whenever the picture does. */
export const pipelineGraphQuery = (ref: string, shown: string) =>
  queryOptions({
    queryKey: ["pipelines", ref, "graph", shown],
    queryFn: () =>
      unwrap(api.GET("/v1/pipelines/{ref}/graph.svg", { params: { path: { ref } }, parseAs: "text" })),
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: false,
    gcTime: 0,
  });

/** The templates of the project and the shared ones, each in its latest version. */
export const templatesQuery = queryOptions({
  queryKey: ["templates"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/templates", { params: { query } }))),
});

export const templateQuery = (name: string, version?: number) =>
  queryOptions({
    queryKey: ["templates", name, version ?? "latest"],
    queryFn: () =>
      unwrapVersioned(
        api.GET("/v1/templates/{name}", {
          params: { path: { name }, query: version === undefined ? {} : { version } },
        }),
      ),
  });

export const templateVersionsQuery = (name: string) =>
  queryOptions({
    queryKey: ["templates", name, "versions"],
    queryFn: () =>
      everyPage((query) =>
        unwrap(api.GET("/v1/templates/{name}/versions", { params: { path: { name }, query } })),
      ),
  });

/** The names of the project's stored secrets, to choose from. */
export const secretNamesQuery = queryOptions({
  queryKey: ["secrets", "names"],
  queryFn: async () =>
    (await everyPage((query) => unwrap(api.GET("/v1/secrets", { params: { query } })))).map(
      (one) => one.name,
    ),
});

export const endpointsQuery = queryOptions({
  queryKey: ["endpoints"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/endpoints", { params: { query } }))),
});

export const revisionsQuery = (name: string) =>
  queryOptions({
    queryKey: ["endpoints", name, "revisions"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/endpoints/{name}/revisions", { params: { path: { name } } }))).items,
  });

export const usersQuery = queryOptions({
  queryKey: ["users"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/users", { params: { query } }))),
});

/** With those that are archived. */
export const allUsersQuery = queryOptions({
  queryKey: ["users", "archived too"],
  queryFn: () =>
    everyPage((query) => unwrap(api.GET("/v1/users", { params: { query: { ...query, archived: true } } }))),
});

export const projectsQuery = queryOptions({
  queryKey: ["projects"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/projects", { params: { query } }))),
});

/** With those that are archived. */
export const allProjectsQuery = queryOptions({
  queryKey: ["projects", "archived too"],
  queryFn: () =>
    everyPage((query) =>
      unwrap(api.GET("/v1/projects", { params: { query: { ...query, archived: true } } })),
    ),
});

export const membersQuery = (name: string) =>
  queryOptions({
    queryKey: ["projects", name, "members"],
    queryFn: () =>
      everyPage((query) =>
        unwrap(api.GET("/v1/projects/{name}/members", { params: { path: { name }, query } })),
      ),
  });

export const keysQuery = queryOptions({
  queryKey: ["keys"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/keys", { params: { query } }))),
});

export const sshKeysQuery = queryOptions({
  queryKey: ["ssh-keys"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/ssh-keys", { params: { query } }))),
});

// A new one for each form, which stays the same while the form is open, because the user signs it.
export const sshChallengeQuery = queryOptions({
  queryKey: ["ssh-key-challenge"],
  queryFn: () => unwrap(api.GET("/v1/ssh-keys/challenge")),
  enabled: (query) => query.state.data === undefined,
  gcTime: 0,
});

export const secretsQuery = queryOptions({
  queryKey: ["secrets"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/secrets", { params: { query } }))),
});

export const subscriptionsQuery = queryOptions({
  queryKey: ["subscriptions"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/subscriptions", { params: { query } }))),
});

/** The newest deliveries of a subscription, read often enough to follow a test. */
export const deliveriesQuery = (id: string) =>
  queryOptions({
    queryKey: ["subscriptions", id, "deliveries"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/subscriptions/{id}/deliveries", { params: { path: { id } } }))).items,
    refetchInterval: 2000,
  });

export const workspacesQuery = queryOptions({
  queryKey: ["workspaces"],
  queryFn: () => unwrap(api.GET("/v1/workspaces")),
});

export const pricesQuery = queryOptions({
  queryKey: ["prices"],
  queryFn: () => unwrap(api.GET("/v1/prices")),
});

export const managersQuery = queryOptions({
  queryKey: ["managers"],
  queryFn: async () => (await unwrap(api.GET("/v1/managers"))).items,
});

export const peersQuery = queryOptions({
  queryKey: ["peers"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/peers", { params: { query } }))),
});

export const joinTokensQuery = queryOptions({
  queryKey: ["join-tokens"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/join-tokens", { params: { query } }))),
});

/** The certificate authority of the links. */
export const authorityQuery = queryOptions({
  queryKey: ["authority"],
  queryFn: () => unwrap(api.GET("/v1/ca")),
});

export const quotasQuery = queryOptions({
  queryKey: ["quotas"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/quotas", { params: { query } }))),
});

export const qosQuery = queryOptions({
  queryKey: ["qos"],
  queryFn: () => everyPage((query) => unwrap(api.GET("/v1/qos", { params: { query } }))),
});

export const budgetsQuery = queryOptions({
  queryKey: ["budgets"],
  queryFn: async () => (await unwrap(api.GET("/v1/budgets"))).items,
});

/** The currency of prices, costs and budgets, an ISO 4217 code; "" if none is set. It changes only with the settings. */
export const currencyQuery = queryOptions({
  queryKey: ["currency"],
  queryFn: async () => (await unwrap(api.GET("/v1/prices"))).currency ?? "",
  staleTime: Number.POSITIVE_INFINITY,
});

const USAGE = { "1d": 1, "7d": 7, "30d": 30, "1y": 365 };
const BUCKETS = { "1d": "hour", "7d": "day", "30d": "day", "1y": "month" } as const;
export type UsageRange = keyof typeof USAGE;
export const usageRanges = Object.keys(USAGE) as UsageRange[];
export const usageBucket = (range: UsageRange) => BUCKETS[range];
export const usageDimensions = [
  "project",
  "user",
  "model",
  "key",
  "endpoint",
  "resource_group",
  "device",
] as const;
export type UsageDimension = (typeof usageDimensions)[number];
// Rows in one answer. Users who need more than a page can show use the command line.
const USAGE_ROWS = 1000;

export const usageFrom = (range: UsageRange) =>
  new Date(serverNow() - USAGE[range] * 86_400_000).toISOString();

/** Usage in that period, with one row for each value of the dimension. */
export const usageQuery = (by: UsageDimension, range: UsageRange) =>
  queryOptions({
    queryKey: ["usage", by, range],
    queryFn: () =>
      unwrap(
        api.GET("/v1/usage", { params: { query: { by: [by], from: usageFrom(range), limit: USAGE_ROWS } } }),
      ),
    refetchInterval: 60_000,
  });

/** The same by hour, day or month; without a dimension, the total. */
export const usageOverTimeQuery = (by: UsageDimension | undefined, range: UsageRange) =>
  queryOptions({
    queryKey: ["usage", "over time", by, range],
    queryFn: () => {
      const query = { by: [by ?? ""], from: usageFrom(range), bucket: BUCKETS[range] };
      return everyPage((page) =>
        unwrap(api.GET("/v1/usage", { params: { query: { ...query, ...page } as never } })),
      );
    },
    refetchInterval: 60_000,
  });

/** Refetch everything that is shown. */
export function refreshAll(client: QueryClient) {
  return client.invalidateQueries({ refetchType: "active" });
}
