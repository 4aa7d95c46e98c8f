import { Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Agent } from "@/api/client";
import { agentsQuery } from "@/api/queries";
import { Opener } from "@/parts/actions";
import { type Column, DataTable } from "@/parts/DataTable";
import { compareSlots, slotName } from "@/parts/format";
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

const COLUMNS: Column<Agent>[] = [
  {
    key: "id",
    header: t("field.agent"),
    cell: (agent) => (
      <Link to="/agents/$id" params={{ id: agent.id }} className="link">
        {agent.id}
      </Link>
    ),
  },
  { key: "status", header: t("field.status"), cell: (agent) => <StatusText status={stateOf(agent)} /> },
  {
    key: "group",
    header: t("field.group"),
    cell: (agent) => (
      <Link to="/groups/$name" params={{ name: agent.resource_group }} className="link">
        {agent.resource_group}
      </Link>
    ),
  },
  {
    key: "use",
    header: t("agents.use"),
    cell: (agent) =>
      totals(agent)
        .map(
          ([slot, used, capacity]) => `${slotName(slot)} ${offered(slot, used)} / ${offered(slot, capacity)}`,
        )
        .join(" · "),
  },
  { key: "kernels", header: t("agents.kernels"), right: true, cell: (agent) => agent.kernels },
  { key: "version", header: t("field.version"), wide: true, cell: (agent) => agent.version },
  { key: "seen", header: t("agents.seen"), wide: true, cell: (agent) => <Age at={agent.last_seen} /> },
];

export function Agents() {
  const agents = useQuery(agentsQuery);
  const { group } = useSearch({ from: "/agents" });
  const navigate = useNavigate({ from: "/agents" });
  const [text, setText] = useState("");
  const groups = useMemo(
    () => [...new Set((agents.data ?? []).map((agent) => agent.resource_group))].sort(),
    [agents.data],
  );
  const shown = useMemo(
    () =>
      (agents.data ?? []).filter(
        (agent) => (!group || agent.resource_group === group) && agent.id.includes(text.trim()),
      ),
    [agents.data, group, text],
  );
  return (
    <Page
      title={t("nav.agents")}
      lead={t("agents.lead")}
      actions={
        <Opener label={t("agents.add")} variant="filled" dialog={(close) => <AddAgent close={close} />} />
      }
    >
      <Section title={t("agents.all")}>
        <div className="filters">
          <TextInput
            size="xs"
            label={t("field.agent")}
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          <Select
            size="xs"
            label={t("field.group")}
            clearable
            data={groups}
            value={group ?? null}
            onChange={(value) => void navigate({ search: { group: value ?? undefined } })}
          />
        </div>
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
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
