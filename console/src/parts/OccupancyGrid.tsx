import { Select, TextInput } from "@mantine/core";
import { Link, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, useMemo, useRef, useState } from "react";
import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { number, visible } from "./format";
import { Empty } from "./States";
import { StatusText } from "./Status";

type AgentRow = Schemas["AgentOccupancy"];
type Slot = Schemas["OccupiedSlot"];
type ColourBy = "project" | "user";

const ROW = 34;
const COLOURS = 8;

/** Colours of the projects (or users) that use the most; all others share one. */
function palette(agents: AgentRow[], by: ColourBy): Map<string, string> {
  const held = new Map<string, number>();
  for (const agent of agents) {
    for (const slot of agent.slots) {
      for (const holder of slot.holders ?? []) {
        const name = holder[by] ?? "";
        if (!holder.hidden && name !== "") {
          held.set(name, (held.get(name) ?? 0) + holder.amount);
        }
      }
    }
  }
  const ranked = [...held].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([name]) => name);
  return new Map(ranked.map((name, rank) => [name, rank < COLOURS ? String(rank) : "other"]));
}

const freeOf = (agent: AgentRow) =>
  agent.slots.filter(isDevice).reduce((total, slot) => total + Math.max(0, slot.capacity - slot.used), 0);

const isDevice = (slot: Slot) => slot.device_id !== "";

const SORTS = ["name", "free"] as const;

/** Each agent is a row of devices; each device shows who is using its shares. */
export function OccupancyGrid({ agents }: { agents: AgentRow[] }) {
  const [by, setBy] = useState<ColourBy>("project");
  const [sort, setSort] = useState<(typeof SORTS)[number]>("name");
  const [search, setSearch] = useState("");
  const colours = useMemo(() => palette(agents, by), [agents, by]);
  const rows = useMemo(() => {
    const wanted = agents.filter((agent) => agent.agent_id.includes(search));
    return sort === "free"
      ? [...wanted].sort((a, b) => freeOf(b) - freeOf(a) || a.agent_id.localeCompare(b.agent_id))
      : wanted;
  }, [agents, search, sort]);
  if (agents.length === 0) {
    return <Empty title={t("grid.noAgents")}>{t("grid.noAgentsText")}</Empty>;
  }
  return (
    <div>
      <div className="filters">
        <TextInput
          label={t("grid.search")}
          value={search}
          onChange={(event) => setSearch(event.currentTarget.value)}
          size="xs"
        />
        <Select
          label={t("grid.colour")}
          size="xs"
          allowDeselect={false}
          data={[
            { value: "project", label: t("field.project") },
            { value: "user", label: t("field.user") },
          ]}
          value={by}
          onChange={(value) => setBy(value as ColourBy)}
        />
        <Select
          label={t("grid.sort")}
          size="xs"
          allowDeselect={false}
          data={SORTS.map((value) => ({ value, label: t(`grid.sort_${value}`) }))}
          value={sort}
          onChange={(value) => setSort(value as "name" | "free")}
        />
      </div>
      <Legend colours={colours} />
      <Rows agents={rows} colours={colours} by={by} />
    </div>
  );
}

function Legend({ colours }: { colours: Map<string, string> }) {
  const named = [...colours].filter(([, colour]) => colour !== "other");
  const others = colours.size - named.length;
  const fixed = ["free", "faulty", "closed"] as const;
  return (
    <div className="legend">
      {named.map(([name, colour]) => (
        <span key={name}>
          <i className={`swatch-${colour}`} />
          {visible(name)}
        </span>
      ))}
      {others > 0 ? (
        <span>
          <i className="swatch-other" />
          {t("grid.others", { count: others })}
        </span>
      ) : null}
      {fixed.map((kind) => (
        <span key={kind}>
          <i className={`swatch-${kind}`} />
          {t(`grid.${kind}`)}
        </span>
      ))}
    </div>
  );
}

interface RowsProps {
  agents: AgentRow[];
  colours: Map<string, string>;
  by: ColourBy;
}

function Rows({ agents, colours, by }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<[number, number]>([0, 0]);
  const virtual = useVirtualizer({
    count: agents.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 6,
  });
  const move = (event: KeyboardEvent) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) {
      return;
    }
    event.preventDefault();
    const row = Math.min(Math.max(at[0] + (step[0] ?? 0), 0), agents.length - 1);
    const cells = agents[row]?.slots.filter(isDevice).length ?? 0;
    const column = Math.min(Math.max(at[1] + (step[1] ?? 0), 0), Math.max(cells - 1, 0));
    setAt([row, column]);
    virtual.scrollToIndex(row);
    window.requestAnimationFrame(() =>
      box.current?.querySelector<HTMLElement>(`[data-cell="${row}-${column}"]`)?.focus(),
    );
  };
  return (
    <div
      ref={box}
      className="grid-box"
      role="grid"
      tabIndex={-1}
      aria-label={t("grid.label")}
      aria-rowcount={agents.length}
      onKeyDown={move}
    >
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => (
          <div
            key={item.key}
            role="row"
            aria-rowindex={item.index + 1}
            tabIndex={-1}
            style={{
              position: "absolute",
              top: 0,
              left: 0,
              minWidth: "100%",
              transform: `translateY(${item.start}px)`,
            }}
          >
            <AgentCells
              agent={agents[item.index] as AgentRow}
              row={item.index}
              focus={at[0] === item.index ? at[1] : -1}
              colours={colours}
              by={by}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

interface CellsProps {
  agent: AgentRow;
  row: number;
  focus: number;
  colours: Map<string, string>;
  by: ColourBy;
}

const AgentCells = memo(function AgentCells({ agent, row, focus, colours, by }: CellsProps) {
  const closed = agent.cordon !== "" || agent.draining || agent.status !== "ALIVE";
  const devices = agent.slots.filter(isDevice);
  const state =
    agent.status !== "ALIVE" ? agent.status : agent.draining || agent.cordon ? "draining" : "ALIVE";
  return (
    <div className="grid-row">
      <div role="rowheader" className="grid-name" title={agent.agent_id}>
        <span className="status-only">
          <StatusText status={state} />
        </span>
        <Link to="/agents/$id" params={{ id: agent.agent_id }} className="link">
          {agent.agent_id}
        </Link>
      </div>
      <div className="grid-cells" role="presentation">
        {devices.length === 0 ? <span className="dim">{t("grid.noDevices")}</span> : null}
        {devices.map((slot, column) => (
          <Cell
            key={`${slot.slot}/${slot.device_id}`}
            agent={agent.agent_id}
            slot={slot}
            closed={closed}
            place={`${row}-${column}`}
            tabbable={focus === column || (row === 0 && focus === -1 && column === 0)}
            colours={colours}
            by={by}
          />
        ))}
      </div>
    </div>
  );
});

interface CellProps {
  agent: string;
  slot: Slot;
  closed: boolean;
  place: string;
  tabbable: boolean;
  colours: Map<string, string>;
  by: ColourBy;
}

function Cell({ agent, slot, closed, place, tabbable, colours, by }: CellProps) {
  const navigate = useNavigate();
  const holders = slot.holders ?? [];
  const state = !slot.healthy ? "faulty" : closed && slot.used === 0 ? "closed" : "open";
  const first = holders.find((holder) => !holder.hidden && holder.session_id);
  return (
    <button
      type="button"
      role="gridcell"
      className="cell"
      data-cell={place}
      data-state={state}
      data-letter={state === "faulty" ? t("grid.faultyLetter") : t("grid.closedLetter")}
      tabIndex={tabbable ? 0 : -1}
      aria-label={label(agent, slot, closed)}
      title={label(agent, slot, closed)}
      onClick={() =>
        first && void navigate({ to: "/sessions/$ref", params: { ref: first.session_id ?? "" } })
      }
    >
      {state === "faulty"
        ? null
        : holders.map((holder) => (
            <span
              key={holder.kernel_id || `${holder.session_id}-${holder.amount}`}
              className={`swatch-${holder.hidden ? "other" : (colours.get(holder[by] ?? "") ?? "other")}`}
              style={{ width: `${(100 * holder.amount) / Math.max(slot.capacity, 1)}%` }}
            />
          ))}
    </button>
  );
}

/** "agent-7 GPU 3: 0.5 of 1 in use: alice/train-12". */
function label(agent: string, slot: Slot, closed: boolean): string {
  const place = t("grid.place", { agent, device: slot.device_id, model: slot.model || slot.slot });
  if (!slot.healthy) {
    return `${place}: ${t("grid.faultyBecause", { reason: slot.unhealthy_reason || t("grid.faulty") })}`;
  }
  const use = t("usage.of", { used: number(slot.used / 1000, 3), capacity: number(slot.capacity / 1000, 3) });
  const names = (slot.holders ?? []).map((holder) =>
    holder.hidden ? t("grid.hidden") : visible(`${holder.project}/${holder.session} (${holder.user})`),
  );
  const tail = closed ? `; ${t("grid.closed")}` : "";
  return `${place}: ${use}${names.length > 0 ? `: ${names.join(", ")}` : ""}${tail}`;
}
