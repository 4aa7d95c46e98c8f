import { Button, Checkbox, NumberInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Suspense, useState } from "react";
import { type Agent, api, type Schemas, unwrap } from "@/api/client";
import { agentHistoryQuery, agentQuery, agentStatsQuery, occupancyQuery } from "@/api/queries";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { bytes, number, visible } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { offered } from "@/parts/Usage";
import { t } from "@/texts";
import { stateOf } from "./Agents";
import { MoveAgent } from "./MoveAgent";

const AgentLoad = lazy(() => import("./AgentLoad"));

type Device = Agent["offers"][number];
type Stats = Schemas["AgentStats"];
type Slot = Schemas["OccupiedSlot"];

export function AgentPage() {
  const { id } = useParams({ from: "/agents/$id" });
  const agent = useQuery(agentQuery(id));
  const stats = useQuery(agentStatsQuery(id));
  const occupancy = useQuery(occupancyQuery({ agent: id }));
  return (
    <Loaded query={agent} height={300} page={id}>
      {(found) => (
        <Page
          title={found.id}
          lead={<StatusText status={stateOf(found)} />}
          may="administer"
          actions={<Actions agent={found} />}
        >
          {found.cordon ? <DrainBanner agent={found} /> : null}
          <Section title={t("agent.about")}>
            <AgentFacts agent={found} stats={stats.data} />
          </Section>
          <Section title={t("agent.devices")}>
            <Devices agent={found} stats={stats.data} />
          </Section>
          <Suspense fallback={<div className="chart-space" />}>
            <AgentLoad agent={found} />
          </Suspense>
          <Section title={t("agent.holders")}>
            <Loaded query={occupancy}>{(rows) => <Holders slots={rows[0]?.slots ?? []} />}</Loaded>
          </Section>
          <History id={id} />
        </Page>
      )}
    </Loaded>
  );
}

function DrainBanner({ agent }: { agent: Agent }) {
  return (
    <div className="banner" role="status">
      <span>
        {agent.cordon === "drain"
          ? t("agent.drainingLine", { count: agent.kernels, by: agent.cordoned_by })
          : t("agent.cordonedLine", { by: agent.cordoned_by })}
        {agent.stop_at ? (
          <>
            {" "}
            {t("agent.stopAt")} <Age at={agent.stop_at} />.
          </>
        ) : null}
      </span>
    </div>
  );
}

function Actions({ agent }: { agent: Agent }) {
  const params = { path: { id: agent.id } };
  const uncordon = useAction(
    () => unwrap(api.DELETE("/v1/agents/{id}/cordon", { params })),
    () => t("agent.uncordoned", { id: agent.id }),
  );
  return (
    <>
      {agent.cordon ? (
        <Button size="xs" variant="default" loading={uncordon.isPending} onClick={() => uncordon.mutate()}>
          {t("agent.uncordon")}
        </Button>
      ) : (
        <Opener
          label={t("agent.cordon")}
          dialog={(close) => (
            <Confirm
              title={t("agent.cordonTitle", { id: agent.id })}
              consequences={[t("agent.cordonText"), t("agent.cordonKeeps", { count: agent.kernels })]}
              verb={t("agent.cordon")}
              safe
              act={() => unwrap(api.PUT("/v1/agents/{id}/cordon", { params, body: { drain: false } }))}
              done={t("agent.cordoned", { id: agent.id })}
              close={close}
            />
          )}
        />
      )}
      {agent.cordon === "drain" ? null : (
        <Opener label={t("agent.drain")} danger dialog={(close) => <Drain agent={agent} close={close} />} />
      )}
      <Opener label={t("agent.move")} dialog={(close) => <MoveAgent agent={agent} close={close} />} />
      {agent.status === "ALIVE" ? null : (
        <Opener label={t("agent.forget")} danger dialog={(close) => <Forget agent={agent} close={close} />} />
      )}
    </>
  );
}

function Drain({ agent, close }: { agent: Agent; close: () => void }) {
  const [seconds, setSeconds] = useState<number | null>(null);
  const occupancy = useQuery(occupancyQuery({ agent: agent.id }));
  const holders = (occupancy.data?.[0]?.slots ?? []).flatMap((slot) => slot.holders ?? []);
  const sessions = new Set(holders.map((holder) => holder.session_id || holder.kernel_id));
  const users = new Set(holders.map((holder) => holder.user).filter(Boolean));
  const replicas = new Set(holders.filter((holder) => holder.endpoint_id).map((holder) => holder.session_id));
  return (
    <Confirm
      title={t("agent.drainTitle", { id: agent.id })}
      consequences={[
        t("agent.drainNew"),
        t("agent.drainSessions", { count: sessions.size, users: users.size }),
        ...(replicas.size > 0 ? [t("agent.drainReplicas", { count: replicas.size })] : []),
        seconds === null ? t("agent.drainWaits") : t("agent.drainStops", { seconds }),
      ]}
      verb={t("agent.drain")}
      act={() =>
        unwrap(
          api.PUT("/v1/agents/{id}/cordon", {
            params: { path: { id: agent.id } },
            body: { drain: true, stop_after_s: seconds },
          }),
        )
      }
      done={t("agent.drainBegan", { id: agent.id })}
      close={close}
    >
      <NumberInput
        label={t("agent.stopAfter")}
        description={t("agent.stopAfterHelp")}
        min={0}
        value={seconds ?? ""}
        onChange={(value) => setSeconds(value === "" ? null : Number(value))}
      />
    </Confirm>
  );
}

function Forget({ agent, close }: { agent: Agent; close: () => void }) {
  const [destroyed, setDestroyed] = useState(false);
  const navigate = useNavigate();
  return (
    <Confirm
      title={t("agent.forgetTitle", { id: agent.id })}
      consequences={[
        t("agent.forgetText"),
        destroyed
          ? t("agent.forgetDestroyed", { count: agent.kernels })
          : t("agent.forgetRefused", { count: agent.kernels }),
      ]}
      verb={t("agent.forget")}
      retype={agent.id}
      act={async () => {
        const params = { path: { id: agent.id }, query: { destroyed } };
        await unwrap(api.DELETE("/v1/agents/{id}", { params }));
        await navigate({ to: "/agents" });
      }}
      done={t("agent.forgotten", { id: agent.id })}
      close={close}
    >
      <Checkbox
        label={t("agent.destroyed")}
        checked={destroyed}
        onChange={(event) => setDestroyed(event.currentTarget.checked)}
      />
    </Confirm>
  );
}

/** The pairs that have a value. */
function optional(facts: [string, string][]): [string, string][] {
  return facts.filter(([, value]) => value !== "");
}

function AgentFacts({ agent, stats }: { agent: Agent; stats: Stats | undefined }) {
  return (
    <Facts
      facts={[
        [
          t("field.group"),
          <Link key="group" to="/groups/$name" params={{ name: agent.resource_group }} className="link">
            {agent.resource_group}
          </Link>,
        ],
        [t("agents.kernels"), agent.max_kernels ? `${agent.kernels} / ${agent.max_kernels}` : agent.kernels],
        [
          t("agent.cpuNow"),
          stats?.cpu == null ? "–" : `${number(stats.cpu / 1000)} / ${number(stats.offered_cpu / 1000)}`,
        ],
        [
          t("agent.memoryNow"),
          stats?.memory == null ? "–" : `${bytes(stats.memory)} / ${bytes(stats.offered_memory)}`,
        ],
        [t("agent.runtimes"), agent.runtimes.join(", ")],
        [t("agent.engines"), agent.engines.join(", ")],
        [t("agent.arch"), agent.arch],
        [t("field.version"), agent.version],
        [
          t("agent.reach"),
          t(agent.reach === "dial-out" ? "agent.reachDialOut" : "agent.reachDirect", {
            address: agent.address,
          }),
        ],
        ...optional([
          [t("agent.reachReason"), agent.reach_reason ?? ""],
          [t("agent.unreachedBy"), (agent.unreached_by ?? []).join(", ")],
          ...Object.entries(agent.undialed ?? {}).map(([proxy, why]): [string, string] => [
            t("agent.undialed", { proxy }),
            why,
          ]),
        ]),
        [t("agent.connected"), <Age key="connected" at={agent.connected_since} />],
        [t("agents.seen"), <Age key="seen" at={agent.last_seen} />],
        [
          t("agent.labels"),
          Object.entries(agent.labels)
            .map(([name, value]) => `${name}=${value}`)
            .join(", "),
        ],
      ]}
    />
  );
}

function Devices({ agent, stats }: { agent: Agent; stats: Stats | undefined }) {
  const now = new Map((stats?.devices ?? []).map((device) => [device.device_id, device]));
  const devices = agent.offers.filter((offer) => offer.device_id !== "");
  return (
    <DataTable<Device>
      label={t("agent.devices")}
      rows={devices}
      id={(device) => `${device.slot}/${device.device_id}`}
      empty={<Empty title={t("agent.noDevices")}>{t("agent.noDevicesText")}</Empty>}
      columns={[
        { key: "id", header: t("agent.device"), cell: (device) => device.device_id },
        { key: "model", header: t("agent.model"), cell: (device) => device.model || device.slot },
        {
          key: "health",
          header: t("agent.health"),
          cell: (device) =>
            device.healthy ? (
              <StatusText status="healthy" />
            ) : (
              <span>
                <StatusText status="FAULTY" /> {visible(device.unhealthy_reason ?? "")}
              </span>
            ),
        },
        {
          key: "used",
          header: t("agent.allocated"),
          right: true,
          cell: (device) => `${number(device.used / 1000, 3)} / ${number(device.capacity / 1000, 3)}`,
        },
        {
          key: "memory",
          header: t("agent.memory"),
          right: true,
          cell: (device) => {
            const used = now.get(device.device_id)?.memory;
            return used == null
              ? bytes(device.memory_bytes)
              : `${bytes(used)} / ${bytes(device.memory_bytes)}`;
          },
        },
        {
          key: "load",
          header: t("agent.load"),
          right: true,
          cell: (device) => {
            const load = now.get(device.device_id)?.gpu;
            return load == null ? "–" : `${Math.round(load / 10)} %`;
          },
        },
        {
          key: "temperature",
          header: t("agent.temperature"),
          right: true,
          wide: true,
          cell: (device) => now.get(device.device_id)?.temperature ?? "–",
        },
      ]}
    />
  );
}

function Holders({ slots }: { slots: Slot[] }) {
  const rows = slots.flatMap((slot) => (slot.holders ?? []).map((holder) => ({ slot, holder })));
  return (
    <DataTable
      label={t("agent.holders")}
      rows={rows}
      id={({ slot, holder }) => `${slot.slot}/${slot.device_id}/${holder.kernel_id}/${holder.amount}`}
      empty={<Empty title={t("agent.idle")}>{t("agent.idleText")}</Empty>}
      columns={[
        {
          key: "session",
          header: t("field.session"),
          cell: ({ holder }) =>
            holder.hidden ? (
              <span className="dim">{t("grid.hidden")}</span>
            ) : (
              <Link to="/sessions/$ref" params={{ ref: holder.session_id ?? "" }} className="link">
                {visible(holder.session ?? "")}
              </Link>
            ),
        },
        { key: "project", header: t("field.project"), cell: ({ holder }) => visible(holder.project ?? "") },
        { key: "user", header: t("field.user"), cell: ({ holder }) => visible(holder.user ?? "") },
        { key: "device", header: t("agent.device"), cell: ({ slot }) => slot.device_id || slot.slot },
        {
          key: "amount",
          header: t("agent.amount"),
          right: true,
          cell: ({ slot, holder }) => offered(slot.slot, holder.amount),
        },
      ]}
    />
  );
}

function History({ id }: { id: string }) {
  const history = useQuery(agentHistoryQuery(id));
  return (
    <Section title={t("agent.history")}>
      <Loaded query={history}>
        {(events) => (
          <DataTable
            label={t("agent.history")}
            rows={events}
            id={(event) => `${event.at}/${event.event}`}
            empty={<Empty title={t("agent.noHistory")} />}
            columns={[
              { key: "at", header: t("field.at"), cell: (event) => <Age at={event.at} /> },
              { key: "event", header: t("field.event"), cell: (event) => event.event },
              { key: "actor", header: t("field.actor"), cell: (event) => visible(event.actor) },
              { key: "detail", header: t("field.detail"), cell: (event) => visible(event.detail ?? "") },
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}
