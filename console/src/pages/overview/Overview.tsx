import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Suspense } from "react";
import type { Schemas } from "@/api/client";
import { endpointsQuery, overviewQuery, sessionsQuery } from "@/api/queries";
import { STARTING, type Status } from "@/api/statuses";
import { number, reasonText, slotName } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { Page, Section } from "@/parts/Page";
import { Queue } from "@/parts/Queue";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { UsageBars } from "@/parts/Usage";
import { t } from "@/texts";
import { Attention } from "./Attention";
import { FirstRun } from "./FirstRun";

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
        {(data) => (
          <>
            <First overview={data} />
            <Tiles overview={data} />
            <FreeLine groups={data.groups} />
            <Attention overview={data} />
          </>
        )}
      </Loaded>
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

/** Shown until there is a session or an endpoint, and while there is no agent. */
function First({ overview }: { overview: Overall }) {
  const agents = overview.groups.reduce(
    (total, group) => total + sum(group.agents ?? {}, "ALIVE", "SUSPECT", "LOST"),
    0,
  );
  const quiet = agents === 0 || sum(overview.sessions ?? {}, ...Object.keys(overview.sessions ?? {})) === 0;
  const sessions = useQuery({ ...sessionsQuery({ limit: 1 }), enabled: quiet });
  const endpoints = useQuery({ ...endpointsQuery, enabled: quiet });
  const known = sessions.data !== undefined && endpoints.data !== undefined;
  const none = known && sessions.data.items.length === 0 && endpoints.data.length === 0;
  return quiet && (agents === 0 || none) ? <FirstRun agents={agents} /> : null;
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
  const tiles: [string, number, Status[] | null, string][] = [
    [t("overview.running"), sum(sessions, "RUNNING"), ["RUNNING"], ""],
    [t("overview.starting"), sum(sessions, ...STARTING), STARTING, ""],
    [t("overview.waiting"), sum(sessions, "PENDING"), ["PENDING"], ""],
    [t("overview.agents"), sum(agents, "ALIVE"), null, t("overview.ofAgents", { count: all })],
  ];
  return (
    <div className="tiles">
      {tiles.map(([name, value, status, note]) => (
        <Link
          className="tile"
          key={name}
          {...(status ? { to: "/sessions", search: { status } } : { to: "/agents" })}
        >
          <div className="tile-name">{name}</div>
          <div className="tile-value">{number(value)}</div>
          {note ? <div className="tile-note">{note}</div> : null}
        </Link>
      ))}
    </div>
  );
}

/** How many devices are free, and the most on a single node: by kind of device. */
function FreeLine({ groups }: { groups: GroupOverview[] }) {
  const kinds = new Map<string, { capacity: number; free: number; largest: number }>();
  for (const group of groups) {
    for (const [slot, found] of Object.entries(group.slots ?? {})) {
      if (slot.endsWith(".device")) {
        const sum = kinds.get(slot) ?? { capacity: 0, free: 0, largest: 0 };
        kinds.set(slot, {
          capacity: sum.capacity + found.capacity / 1000,
          free: sum.free + (found.free_devices ?? 0),
          largest: Math.max(sum.largest, found.largest_block ?? 0),
        });
      }
    }
  }
  return (
    <>
      {[...kinds].sort().map(([slot, { capacity, free, largest }]) => (
        <p key={slot} className="free-line">
          <strong>
            {t("overview.free", {
              free: number(free, 0),
              capacity: number(capacity, 0),
              slot: slotName(slot),
            })}
          </strong>{" "}
          {free > 0 ? t("overview.largest", { count: largest }) : null}
        </p>
      ))}
    </>
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
