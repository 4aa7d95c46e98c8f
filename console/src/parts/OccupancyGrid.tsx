import { Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, useMemo, useRef, useState } from "react";
import type { Schemas } from "@/api/client";
import { allStatsQuery } from "@/api/queries";
import { t } from "@/texts";
import { visible } from "./format";
import { FreeBlock, HeatMap } from "./HeatMap";
import {
  COLOUR_BY,
  type ColourBy,
  type Colouring,
  closedFor,
  colouringOf,
  describe,
  devicesOf,
  isDevice,
  stateOfDevice,
} from "./occupancy";
import { Empty, Problem } from "./States";
import { StatusText } from "./Status";

type AgentRow = Schemas["AgentOccupancy"];
type Slot = Schemas["OccupiedSlot"];
const ROW = 34;
const freeOf = (agent: AgentRow) =>
  agent.slots.filter(isDevice).reduce((total, slot) => total + Math.max(0, slot.capacity - slot.used), 0);

const SORTS = ["name", "free"] as const;

// With more nodes than this, the map shows more on one screen than rows do.
const ROWS_FIT = 16;
const LAYOUTS = ["rows", "map"] as const;

/** The devices of each agent, and who is using them: in rows if there are few nodes, as a map if there are many. */
export function OccupancyGrid({ agents }: { agents: AgentRow[] }) {
  const [by, setBy] = useState<ColourBy>("project");
  const [sort, setSort] = useState<(typeof SORTS)[number]>("name");
  const [search, setSearch] = useState("");
  const [layout, setLayout] = useState<(typeof LAYOUTS)[number] | null>(null);
  const measured = by === "load" || by === "memory";
  const stats = useQuery({ ...allStatsQuery, enabled: measured });
  const colouring = useMemo(() => colouringOf(agents, by, stats.data), [agents, by, stats.data]);
  const rows = useMemo(() => {
    const wanted = agents.filter((agent) => agent.agent_id.toLowerCase().includes(search.toLowerCase()));
    return sort === "free"
      ? [...wanted].sort((a, b) => freeOf(b) - freeOf(a) || a.agent_id.localeCompare(b.agent_id))
      : wanted;
  }, [agents, search, sort]);
  if (agents.length === 0) {
    return <Empty title={t("grid.noAgents")}>{t("grid.noAgentsText")}</Empty>;
  }
  const shown = layout ?? (agents.length > ROWS_FIT ? "map" : "rows");
  return (
    <div>
      <FreeBlock agents={agents} />
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
          data={COLOUR_BY.map((value) => ({ value, label: t(`grid.by_${value}`) }))}
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
        <Select
          label={t("grid.layout")}
          size="xs"
          allowDeselect={false}
          data={LAYOUTS.map((value) => ({ value, label: t(`grid.layout_${value}`) }))}
          value={shown}
          onChange={(value) => setLayout(value as (typeof LAYOUTS)[number])}
        />
      </div>
      {measured && stats.error ? <Problem error={stats.error} retry={() => void stats.refetch()} /> : null}
      <Legend colouring={colouring} />
      {rows.length === 0 ? (
        <Empty title={t("table.nothing", { text: search })} />
      ) : shown === "map" ? (
        <HeatMap agents={rows} colouring={colouring} />
      ) : (
        <Rows agents={rows} colouring={colouring} />
      )}
    </div>
  );
}

const SHADES = ["0", "1", "2", "3", "4", "5"] as const;

function Legend({ colouring }: { colouring: Colouring }) {
  const named = [...colouring.names].filter(([, colour]) => colour !== "other");
  const others = colouring.names.size - named.length;
  const people = colouring.by === "project" || colouring.by === "user";
  const fixed = people
    ? (["free", "faulty", "closed"] as const)
    : colouring.by === "allocation"
      ? (["faulty", "closed"] as const)
      : (["unknown", "faulty", "closed"] as const);
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
      {people
        ? null
        : SHADES.map((step) => (
            <span key={step}>
              <i className={`swatch-shade-${step}`} />
              {t(`grid.shade_${step}`)}
            </span>
          ))}
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
  colouring: Colouring;
}

function Rows({ agents, colouring }: RowsProps) {
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
              colouring={colouring}
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
  colouring: Colouring;
}

const AgentCells = memo(function AgentCells({ agent, row, focus, colouring }: CellsProps) {
  const closed = closedFor(agent);
  const devices = devicesOf(agent);
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
            agent={agent}
            slot={slot}
            closed={closed}
            place={`${row}-${column}`}
            tabbable={focus === column || (row === 0 && focus === -1 && column === 0)}
            colouring={colouring}
          />
        ))}
      </div>
    </div>
  );
});

interface CellProps {
  agent: AgentRow;
  slot: Slot;
  closed: boolean;
  place: string;
  tabbable: boolean;
  colouring: Colouring;
}

function Cell({ agent, slot, closed, place, tabbable, colouring }: CellProps) {
  const navigate = useNavigate();
  const holders = slot.holders ?? [];
  const state = stateOfDevice(slot, closed);
  const people = colouring.by === "project" || colouring.by === "user" ? colouring.by : null;
  const whole = colouring.of(agent, slot);
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
      aria-label={describe(agent, slot, colouring)}
      title={describe(agent, slot, colouring)}
      onClick={() =>
        first && void navigate({ to: "/sessions/$ref", params: { ref: first.session_id ?? "" } })
      }
    >
      {state === "faulty" ? null : people ? (
        holders.map((holder) => (
          <span
            key={holder.kernel_id || `${holder.session_id}-${holder.amount}`}
            className={`swatch-${holder.hidden ? "other" : (colouring.names.get(holder[people] ?? "") ?? "other")}`}
            style={{ width: `${(100 * holder.amount) / Math.max(slot.capacity, 1)}%` }}
          />
        ))
      ) : (
        <span className={`swatch-${whole.colour}`} style={{ width: `${Math.round(100 * whole.share)}%` }} />
      )}
    </button>
  );
}
