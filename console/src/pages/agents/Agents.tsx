import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useMay } from "@/api/auth";
import { type Agent, api, unwrap } from "@/api/client";
import { agentsQuery } from "@/api/queries";
import { Opener } from "@/parts/actions";
import type { BulkAction } from "@/parts/Bulk";
import { type Column, DataTable } from "@/parts/DataTable";
import { compareSlots, slotName } from "@/parts/format";
import { useListView } from "@/parts/listView";
import { Only } from "@/parts/Only";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { offered } from "@/parts/Usage";
import { t } from "@/texts";
import { AddAgent } from "./AddAgent";

/** Used and offered amounts by slot, summed over all its devices. */
export function totals(agent: Agent): [string, number, number][] {
  const found = new Map<string, [number, number]>();
  for (const offer of agent.offers) {
    const [used, capacity] = found.get(offer.slot) ?? [0, 0];
    found.set(offer.slot, [used + offer.used, capacity + offer.capacity]);
  }
  return [...found]
    .sort(([a], [b]) => compareSlots(a, b))
    .map(([slot, [used, capacity]]) => [slot, used, capacity]);
}

export function stateOf(agent: Agent): Agent["status"] | "draining" {
  return agent.status === "ALIVE" && agent.draining ? "draining" : agent.status;
}

const useOf = (agent: Agent) =>
  totals(agent)
    .map(([slot, used, capacity]) => `${slotName(slot)} ${offered(slot, used)} / ${offered(slot, capacity)}`)
    .join(" · ");

/** The share of its first slot, which is its GPUs if it has any, that is in use. */
function devicesUsed(agent: Agent): number {
  const [, used = 0, capacity = 1] = totals(agent)[0] ?? [];
  return used / Math.max(capacity, 1);
}

const cordon = (agent: Agent) => ({ params: { path: { id: agent.id } } });

const BULK: BulkAction<Agent>[] = [
  {
    key: "drain",
    verb: t("bulk.drain"),
    danger: true,
    applies: (agent) => agent.cordon !== "drain",
    consequence: t("bulk.drainAgents"),
    act: (agent) => unwrap(api.PUT("/v1/agents/{id}/cordon", { ...cordon(agent), body: { drain: true } })),
  },
  {
    key: "resume",
    verb: t("bulk.resume"),
    applies: (agent) => agent.cordon !== "",
    consequence: t("bulk.resumeAgents"),
    act: (agent) => unwrap(api.DELETE("/v1/agents/{id}/cordon", cordon(agent))),
  },
];

const COLUMNS: Column<Agent>[] = [
  {
    key: "id",
    header: t("field.agent"),
    sort: (agent) => agent.id,
    cell: (agent) => (
      <Link to="/agents/$id" params={{ id: agent.id }} className="link">
        {agent.id}
      </Link>
    ),
  },
  {
    key: "status",
    header: t("field.status"),
    sort: stateOf,
    cell: (agent) => <StatusText status={stateOf(agent)} />,
  },
  {
    key: "group",
    header: t("field.group"),
    sort: (agent) => agent.resource_group,
    cell: (agent) => (
      <Link to="/groups/$name" params={{ name: agent.resource_group }} className="link">
        {agent.resource_group}
      </Link>
    ),
  },
  {
    key: "use",
    header: t("agents.use"),
    sort: (agent) => devicesUsed(agent),
    line: useOf,
    cell: useOf,
  },
  {
    key: "kernels",
    header: t("agents.kernels"),
    right: true,
    sort: (agent) => agent.kernels,
    cell: (agent) => agent.kernels,
  },
  {
    key: "version",
    header: t("field.version"),
    wide: true,
    sort: (agent) => agent.version,
    cell: (agent) => agent.version,
  },
  {
    key: "seen",
    header: t("agents.seen"),
    wide: true,
    sort: (agent) => agent.last_seen,
    cell: (agent) => <Age at={agent.last_seen} />,
  },
];

export function Agents() {
  const agents = useQuery(agentsQuery);
  const { group } = useSearch({ from: "/agents" });
  const navigate = useNavigate({ from: "/agents" });
  const view = useListView();
  const administers = useMay("administer");
  const groups = useMemo(
    () => [...new Set((agents.data ?? []).map((agent) => agent.resource_group))].sort(),
    [agents.data],
  );
  const shown = useMemo(
    () => (agents.data ?? []).filter((agent) => !group || agent.resource_group === group),
    [agents.data, group],
  );
  return (
    <Page
      title={t("nav.agents")}
      lead={t("agents.lead")}
      actions={
        <Only may="administer">
          <Opener label={t("agents.add")} variant="filled" dialog={(close) => <AddAgent close={close} />} />
        </Only>
      }
    >
      <Section title={t("agents.all")}>
        <Loaded query={agents} height={300}>
          {() => (
            <DataTable
              label={t("nav.agents")}
              rows={shown}
              id={(agent) => agent.id}
              empty={
                <Empty title={t("agents.empty")} command="moorage join-tokens create">
                  {t("agents.emptyText")}
                </Empty>
              }
              columns={COLUMNS}
              view={view}
              searched={(agent) => agent.id}
              bulk={administers ? BULK : undefined}
              filters={
                groups.length === 0 ? null : (
                  <Select
                    size="xs"
                    label={t("field.group")}
                    clearable
                    data={groups}
                    value={group ?? null}
                    onChange={(value) =>
                      void navigate({ search: (before) => ({ ...before, group: value ?? undefined }) })
                    }
                  />
                )
              }
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
