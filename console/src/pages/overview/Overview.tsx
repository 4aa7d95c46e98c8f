import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import type { Schemas } from "@/api/client";
import { agentsQuery, overviewQuery, sessionsQuery } from "@/api/queries";
import { STARTING } from "@/api/statuses";
import { reasonText } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Queue } from "@/parts/Queue";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { UsageBars } from "@/parts/Usage";
import { t } from "@/texts";

const History = lazy(() => import("@/charts/History"));

type Overall = Schemas["Overview"];
type GroupOverview = Schemas["GroupOverview"];

const QUEUE = { status: ["PENDING" as const], limit: 20 };

export function Overview() {
  const overview = useQuery(overviewQuery);
  const queue = useQuery(sessionsQuery(QUEUE));
  return (
    <Page title={t("overview.title")} lead={t("overview.lead")}>
      <Loaded query={overview} height={96}>
        {(data) => <Tiles overview={data} />}
      </Loaded>
      <Attention />
      <Loaded query={overview} height={260}>
        {(data) => (
          <div className="columns">
            {data.groups.map((group) => (
              <GroupCard key={group.name} group={group} />
            ))}
          </div>
        )}
      </Loaded>
      <Suspense fallback={<div className="chart-space" />}>
        <History />
      </Suspense>
      <Section title={t("overview.queue")}>
        <Loaded query={queue}>{(page) => <Queue sessions={page.items} groups />}</Loaded>
      </Section>
    </Page>
  );
}

function sum(counts: Record<string, number>, ...names: string[]): number {
  return names.reduce((total, name) => total + (counts[name] ?? 0), 0);
}

function Tiles({ overview }: { overview: Overall }) {
  const agents: Record<string, number> = {};
  for (const group of overview.groups) {
    for (const [status, count] of Object.entries(group.agents ?? {})) {
      agents[status] = (agents[status] ?? 0) + count;
    }
  }
  const sessions = overview.sessions ?? {};
  const all = sum(agents, "ALIVE", "SUSPECT", "LOST");
  const tiles: [string, number, string][] = [
    [t("overview.running"), sum(sessions, "RUNNING"), ""],
    [t("overview.starting"), sum(sessions, ...STARTING), ""],
    [t("overview.waiting"), sum(sessions, "PENDING"), ""],
    [t("overview.agents"), sum(agents, "ALIVE"), t("overview.ofAgents", { count: all })],
  ];
  return (
    <div className="tiles">
      {tiles.map(([name, value, note]) => (
        <div className="tile" key={name}>
          <div className="tile-value">{value}</div>
          <div className="tile-name">{name}</div>
          {note ? <div className="tile-note">{note}</div> : null}
        </div>
      ))}
    </div>
  );
}

/** Agents that need attention: silent, refusing their orders, or with faulty devices. */
function Attention() {
  const { data } = useQuery({ ...agentsQuery, staleTime: 10_000 });
  const troubled = (data ?? [])
    .map((agent) => {
      const faulty = agent.offers.filter((offer) => !offer.healthy);
      const text =
        agent.status !== "ALIVE"
          ? t("overview.silent")
          : !agent.ready
            ? t("overview.notReady")
            : faulty.length > 0
              ? t("overview.faulty", { devices: faulty.map((offer) => offer.device_id).join(", ") })
              : "";
      return { agent, text };
    })
    .filter(({ text }) => text !== "");
  if (troubled.length === 0) {
    return null;
  }
  return (
    <Section title={t("overview.attention")}>
      <ul className="plain">
        {troubled.slice(0, 8).map(({ agent, text }) => (
          <li key={agent.id}>
            <StatusText status={agent.status} />{" "}
            <Link to="/agents/$id" params={{ id: agent.id }} className="link">
              {agent.id}
            </Link>{" "}
            <span className="dim">{text}</span>
          </li>
        ))}
      </ul>
      {troubled.length > 8 ? (
        <p className="dim">{t("overview.more", { count: troubled.length - 8 })}</p>
      ) : null}
    </Section>
  );
}

function GroupCard({ group }: { group: GroupOverview }) {
  const sessions = group.sessions ?? {};
  const waiting = Object.entries(group.waiting ?? {}).sort((a, b) => b[1] - a[1]);
  const slots = group.slots ?? {};
  return (
    <Section
      title={group.name}
      actions={
        <Link to="/groups/$name" params={{ name: group.name }} className="link">
          {t("overview.details")}
        </Link>
      }
    >
      {Object.keys(slots).length > 0 ? (
        <UsageBars slots={slots} />
      ) : (
        <Empty title={t("overview.noAgents")} command={`moorage join-tokens create --group ${group.name}`} />
      )}
      <p className="card-line">
        {t("overview.groupLine", { running: sum(sessions, "RUNNING"), waiting: sum(sessions, "PENDING") })}
        {group.oldest_pending_since ? (
          <>
            {" · "}
            {t("overview.oldest")} <Age at={group.oldest_pending_since} />
          </>
        ) : null}
      </p>
      {waiting.length > 0 ? (
        <ul className="plain dim">
          {waiting.map(([reason, count]) => (
            <li key={reason}>
              {t("overview.waitingBecause", {
                count,
                reason: reason === "" ? t("queue.fresh") : reasonText(reason),
              })}
            </li>
          ))}
        </ul>
      ) : null}
    </Section>
  );
}
