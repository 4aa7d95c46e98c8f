import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";

type Limit = Schemas["LimitView"];
type Use = Schemas["LimitUse"] | null | undefined;

// The proxies report the use every few seconds, without events.
const POLL_MS = 5000;

const KINDS = ["requests_per_minute", "tokens_per_minute", "concurrent_requests"] as const;

/** The limits of requests, and how much of each is in use. They are set where they belong. */
export function Limits() {
  const limits = useQuery({
    queryKey: ["limits"],
    queryFn: async () => (await unwrap(api.GET("/v1/limits"))).items,
    refetchInterval: POLL_MS,
  });
  return (
    <Section title={t("limits.title")}>
      <Loaded query={limits}>
        {(rows) => (
          <DataTable<Limit>
            label={t("limits.title")}
            rows={rows}
            id={(limit) => `${limit.scope}/${limit.project}/${limit.name}`}
            empty={<Empty title={t("limits.empty")}>{t("limits.emptyText")}</Empty>}
            columns={[
              { key: "scope", header: t("limits.of"), cell: (limit) => t(`limits.${limit.scope}`) },
              { key: "name", header: t("field.name"), cell: (limit) => <Named limit={limit} /> },
              { key: "project", header: t("field.project"), cell: (limit) => visible(limit.project) },
              ...KINDS.map((kind) => ({
                key: kind,
                header: t(`keys.limits.${kind}`),
                right: true,
                cell: (limit: Limit) => <Used use={limit[kind]} />,
              })),
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

/** The name, with a link to where its limits are set. */
function Named({ limit }: { limit: Limit }): ReactNode {
  const name = visible(limit.name);
  if (limit.scope === "project") {
    return (
      <Link to="/projects/$name" params={{ name: limit.name }} className="link">
        {name}
      </Link>
    );
  }
  if (limit.scope === "model") {
    return (
      <Link to="/endpoints/$name" params={{ name: limit.name }} className="link">
        {name}
      </Link>
    );
  }
  return (
    <Link to="/keys" className="link">
      {name}
    </Link>
  );
}

function Used({ use }: { use: Use }) {
  if (!use) {
    return <span className="dim">{t("limits.none")}</span>;
  }
  const { used, limit } = use;
  return (
    <span className={used >= limit ? "reached" : undefined}>{t("usage.of", { used, capacity: limit })}</span>
  );
}
