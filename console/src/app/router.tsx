import type { QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, createRouter } from "@tanstack/react-router";
import { CONSOLE } from "@/api/place";
import { type SessionType, STATUSES, type Status, TYPES } from "@/api/statuses";
import { Overview } from "@/pages/overview/Overview";
import { STATES, type StepState } from "@/pages/pipelines/Counts";
import { lazyRouteComponent } from "@/parts/lazy";
import { Problem } from "@/parts/States";
import { NotFound, Shell } from "./Shell";

const root = createRootRouteWithContext<{ client: QueryClient }>()({
  component: Shell,
  notFoundComponent: NotFound,
});

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

/** The view of a list, see `useListView`. */
interface ListSearch {
  search?: string | undefined;
  sort?: string | undefined;
}

const listSearch = (search: Record<string, unknown>): ListSearch => ({
  search: typeof search.search === "number" ? String(search.search) : text(search.search),
  sort: text(search.sort),
});

export interface SessionSearch extends ListSearch {
  status?: Status[] | undefined;
  group?: string | undefined;
  type?: SessionType | undefined;
  name?: string | undefined;
  endpoint?: string | undefined;
}

const TABS = [
  "about",
  "timeline",
  "logs",
  "tasks",
  "terminal",
  "files",
  "usage",
  "scheduling",
  "spec",
] as const;
export type SessionTab = (typeof TABS)[number];

/** What the page of a session shows; its list is that of the files in `path`. */
interface SessionPageSearch extends ListSearch {
  tab?: SessionTab | undefined;
  path?: string | undefined;
}

export interface PipelineSearch {
  state?: StepState | undefined;
}

/** The period of the calendar: the week or month of `day`. */
interface CalendarSearch {
  view?: "month" | undefined;
  day?: string | undefined;
}

interface AgentSearch extends ListSearch {
  group?: string | undefined;
}

export interface CreateSearch {
  group?: string | undefined;
}

/** What a new object starts from: one like it, or a template. */
export interface StartSearch extends CreateSearch {
  like?: string | undefined;
  template?: string | undefined;
}

/** An endpoint can also start from a model of the catalogue. */
export interface EndpointSearch extends StartSearch {
  model?: string | undefined;
  context?: number | undefined;
}

const startSearch = (search: Record<string, unknown>): StartSearch => ({
  group: text(search.group),
  like: text(search.like),
  template: text(search.template),
});

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: Overview,
});

const groups = createRoute({
  getParentRoute: () => root,
  path: "/groups",
  component: lazyRouteComponent(() => import("@/pages/groups/Groups"), "Groups"),
});

const group = createRoute({
  getParentRoute: () => root,
  path: "/groups/$name",
  component: lazyRouteComponent(() => import("@/pages/groups/GroupPage"), "GroupPage"),
});

const agents = createRoute({
  getParentRoute: () => root,
  path: "/agents",
  validateSearch: (search: Record<string, unknown>): AgentSearch => ({
    ...listSearch(search),
    group: text(search.group),
  }),
  component: lazyRouteComponent(() => import("@/pages/agents/Agents"), "Agents"),
});

const agent = createRoute({
  getParentRoute: () => root,
  path: "/agents/$id",
  component: lazyRouteComponent(() => import("@/pages/agents/AgentPage"), "AgentPage"),
});

const sessions = createRoute({
  getParentRoute: () => root,
  path: "/sessions",
  validateSearch: (search: Record<string, unknown>): SessionSearch => ({
    ...listSearch(search),
    status: Array.isArray(search.status)
      ? STATUSES.filter((status) => (search.status as unknown[]).includes(status))
      : undefined,
    group: text(search.group),
    type: TYPES.find((type) => type === search.type),
    name: text(search.name),
    endpoint: text(search.endpoint),
  }),
  component: lazyRouteComponent(() => import("@/pages/sessions/Sessions"), "Sessions"),
});

const newSession = createRoute({
  getParentRoute: () => root,
  path: "/new-session",
  validateSearch: startSearch,
  component: lazyRouteComponent(() => import("@/pages/sessions/NewSession"), "NewSession"),
});

const session = createRoute({
  getParentRoute: () => root,
  path: "/sessions/$ref",
  validateSearch: (search: Record<string, unknown>): SessionPageSearch => ({
    ...listSearch(search),
    tab: TABS.find((tab) => tab === search.tab),
    path: typeof search.path === "number" ? String(search.path) : text(search.path),
  }),
  component: lazyRouteComponent(() => import("@/pages/sessions/SessionPage"), "SessionPage"),
});

const cronJobs = createRoute({
  getParentRoute: () => root,
  path: "/cron-jobs",
  validateSearch: listSearch,
  component: lazyRouteComponent(() => import("@/pages/cron/CronJobs"), "CronJobs"),
});

const newCronJob = createRoute({
  getParentRoute: () => root,
  path: "/new-cron-job",
  component: lazyRouteComponent(() => import("@/pages/cron/EditCronJob"), "NewCronJob"),
});

const cronJob = createRoute({
  getParentRoute: () => root,
  path: "/cron-jobs/$ref",
  component: lazyRouteComponent(() => import("@/pages/cron/CronJobPage"), "CronJobPage"),
});

const changeCronJob = createRoute({
  getParentRoute: () => root,
  path: "/cron-jobs/$ref/change",
  component: lazyRouteComponent(() => import("@/pages/cron/EditCronJob"), "ChangeCronJob"),
});

const calendar = createRoute({
  getParentRoute: () => root,
  path: "/calendar",
  validateSearch: (search: Record<string, unknown>): CalendarSearch => ({
    view: search.view === "month" ? "month" : undefined,
    day: typeof search.day === "string" && /^\d{4}-\d{2}-\d{2}$/.test(search.day) ? search.day : undefined,
  }),
  component: lazyRouteComponent(() => import("@/pages/cron/Calendar"), "Calendar"),
});

const pipelines = createRoute({
  getParentRoute: () => root,
  path: "/pipelines",
  component: lazyRouteComponent(() => import("@/pages/pipelines/Pipelines"), "Pipelines"),
});

const pipeline = createRoute({
  getParentRoute: () => root,
  path: "/pipelines/$ref",
  validateSearch: (search: Record<string, unknown>): PipelineSearch => ({
    state: STATES.find((state) => state === search.state),
  }),
  component: lazyRouteComponent(() => import("@/pages/pipelines/PipelinePage"), "PipelinePage"),
});

const newPipeline = createRoute({
  getParentRoute: () => root,
  path: "/new-pipeline",
  component: lazyRouteComponent(() => import("@/pages/pipelines/NewPipeline"), "NewPipeline"),
});

const templates = createRoute({
  getParentRoute: () => root,
  path: "/templates",
  component: lazyRouteComponent(() => import("@/pages/templates/Templates"), "Templates"),
});

const template = createRoute({
  getParentRoute: () => root,
  path: "/templates/$name",
  component: lazyRouteComponent(() => import("@/pages/templates/TemplatePage"), "TemplatePage"),
});

const newTemplate = createRoute({
  getParentRoute: () => root,
  path: "/new-template",
  component: lazyRouteComponent(() => import("@/pages/templates/EditTemplate"), "NewTemplate"),
});

const changeTemplate = createRoute({
  getParentRoute: () => root,
  path: "/templates/$name/change",
  component: lazyRouteComponent(() => import("@/pages/templates/EditTemplate"), "ChangeTemplate"),
});

const endpoints = createRoute({
  getParentRoute: () => root,
  path: "/endpoints",
  component: lazyRouteComponent(() => import("@/pages/endpoints/Endpoints"), "Endpoints"),
});

const catalog = createRoute({
  getParentRoute: () => root,
  path: "/catalog",
  validateSearch: listSearch,
  component: lazyRouteComponent(() => import("@/pages/endpoints/Catalog"), "Catalog"),
});

const newEndpoint = createRoute({
  getParentRoute: () => root,
  path: "/new-endpoint",
  validateSearch: (search: Record<string, unknown>): EndpointSearch => ({
    ...startSearch(search),
    model: text(search.model),
    context: typeof search.context === "number" && search.context > 0 ? search.context : undefined,
  }),
  component: lazyRouteComponent(() => import("@/pages/endpoints/NewEndpoint"), "NewEndpoint"),
});

const endpoint = createRoute({
  getParentRoute: () => root,
  path: "/endpoints/$name",
  component: lazyRouteComponent(() => import("@/pages/endpoints/EndpointPage"), "EndpointPage"),
});

const changeEndpoint = createRoute({
  getParentRoute: () => root,
  path: "/endpoints/$name/change",
  component: lazyRouteComponent(() => import("@/pages/endpoints/ChangeEndpoint"), "ChangeEndpoint"),
});

const users = createRoute({
  getParentRoute: () => root,
  path: "/users",
  component: lazyRouteComponent(() => import("@/pages/people/Users"), "Users"),
});

const projects = createRoute({
  getParentRoute: () => root,
  path: "/projects",
  component: lazyRouteComponent(() => import("@/pages/people/Projects"), "Projects"),
});

const project = createRoute({
  getParentRoute: () => root,
  path: "/projects/$name",
  component: lazyRouteComponent(() => import("@/pages/people/ProjectPage"), "ProjectPage"),
});

const keys = createRoute({
  getParentRoute: () => root,
  path: "/keys",
  component: lazyRouteComponent(() => import("@/pages/people/Keys"), "Keys"),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  component: lazyRouteComponent(() => import("@/pages/people/Audit"), "Audit"),
});

const quotas = createRoute({
  getParentRoute: () => root,
  path: "/quotas",
  component: lazyRouteComponent(() => import("@/pages/people/Quotas"), "Quotas"),
});

const usage = createRoute({
  getParentRoute: () => root,
  path: "/usage",
  component: lazyRouteComponent(() => import("@/pages/usage/Usage"), "Usage"),
});

const secrets = createRoute({
  getParentRoute: () => root,
  path: "/secrets",
  component: lazyRouteComponent(() => import("@/pages/storage/Secrets"), "Secrets"),
});

const notifications = createRoute({
  getParentRoute: () => root,
  path: "/notifications",
  component: lazyRouteComponent(() => import("@/pages/notifications/Notifications"), "Notifications"),
});

const workspaces = createRoute({
  getParentRoute: () => root,
  path: "/workspaces",
  component: lazyRouteComponent(() => import("@/pages/storage/Workspaces"), "Workspaces"),
});

const prices = createRoute({
  getParentRoute: () => root,
  path: "/prices",
  component: lazyRouteComponent(() => import("@/pages/usage/Prices"), "Prices"),
});

const connections = createRoute({
  getParentRoute: () => root,
  path: "/connections",
  component: lazyRouteComponent(() => import("@/pages/connections/Connections"), "Connections"),
});

const tree = root.addChildren([
  overview,
  groups,
  group,
  agents,
  agent,
  sessions,
  newSession,
  session,
  pipelines,
  pipeline,
  newPipeline,
  cronJobs,
  newCronJob,
  cronJob,
  changeCronJob,
  calendar,
  templates,
  template,
  newTemplate,
  changeTemplate,
  endpoints,
  catalog,
  newEndpoint,
  endpoint,
  changeEndpoint,
  users,
  projects,
  project,
  keys,
  quotas,
  usage,
  prices,
  secrets,
  notifications,
  workspaces,
  connections,
  audit,
]);

export function makeRouter(client: QueryClient) {
  return createRouter({
    routeTree: tree,
    basepath: CONSOLE,
    context: { client },
    defaultPreload: "intent",
    scrollRestoration: true,
    defaultErrorComponent: ({ error, reset }) => <Problem error={error} retry={reset} />,
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
