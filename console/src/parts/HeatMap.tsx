import { Link, useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type MouseEvent, memo, useMemo, useRef, useState } from "react";
import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { visible } from "./format";
import { type Colouring, closedFor, describe, devicesOf, stateOfDevice } from "./occupancy";

type AgentRow = Schemas["AgentOccupancy"];

interface Props {
  agents: AgentRow[];
  colouring: Colouring;
}

/**
 * Hundreds of nodes on one screen: each node is a small row of devices below its name. Colours are never alone: the
 * height of a cell's filling shows how much of it is in use, faulty and closed devices have their own patterns, and
 * the line below names whatever is pointed at or focused.
 */
export function HeatMap({ agents, colouring }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const [at, setAt] = useState<[number, number]>([0, 0]);
  const [pointed, setPointed] = useState<[number, number] | null>(null);
  const [node, device] = pointed ?? at;

  const placeOf = (event: MouseEvent): [number, number] | null => {
    const cell = (event.target as Element).closest<HTMLElement>("[data-place]");
    const [row, column] = (cell?.dataset.place ?? "").split("-").map(Number);
    return cell && row !== undefined && column !== undefined ? [row, column] : null;
  };
  const open = ([row, column]: [number, number]) => {
    const slot = agents[row] ? devicesOf(agents[row])[column] : undefined;
    const holder = (slot?.holders ?? []).find((one) => !one.hidden && one.session_id);
    if (holder?.session_id) {
      void navigate({ to: "/sessions/$ref", params: { ref: holder.session_id } });
    } else if (agents[row]) {
      void navigate({ to: "/agents/$id", params: { id: agents[row].agent_id } });
    }
  };
  const move = (event: KeyboardEvent) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(at);
      return;
    }
    const step = stepOf(event.key, box.current);
    if (step === null) {
      return;
    }
    event.preventDefault();
    const last = (row: number) => Math.max((agents[row] ? devicesOf(agents[row]).length : 1) - 1, 0);
    let [row, column] = [at[0] + step[0], at[1] + step[1]];
    if (column < 0 && row > 0) {
      row -= 1;
      column = last(row);
    } else if (column > last(row)) {
      row += 1;
      column = 0;
    }
    row = Math.min(Math.max(row, 0), agents.length - 1);
    column = Math.min(Math.max(column, 0), last(row));
    setAt([row, column]);
    window.requestAnimationFrame(() =>
      box.current?.querySelector<HTMLElement>(`[data-place="${row}-${column}"]`)?.focus(),
    );
  };
  return (
    <>
      <div
        ref={box}
        className="heat"
        role="grid"
        aria-label={t("grid.label")}
        aria-rowcount={agents.length}
        onKeyDown={move}
        onClick={(event) => {
          const place = placeOf(event);
          if (place) {
            open(place);
          }
        }}
        onMouseOver={(event) => setPointed(placeOf(event))}
        onMouseLeave={() => setPointed(null)}
        onFocus={(event) => {
          const place = placeOf(event as unknown as MouseEvent);
          if (place) {
            setAt(place);
          }
        }}
      >
        {agents.map((agent, row) => (
          <Node
            key={agent.agent_id}
            agent={agent}
            row={row}
            tabbable={at[0] === row ? at[1] : -1}
            colouring={colouring}
          />
        ))}
      </div>
      <Readout agent={agents[node]} device={device} colouring={colouring} />
    </>
  );
}

/** The step of a key; up and down are a line of nodes, whose length depends on the width. */
function stepOf(key: string, box: HTMLElement | null): [number, number] | null {
  const nodes = [...(box?.children ?? [])] as HTMLElement[];
  const across = Math.max(
    nodes.findIndex((node) => node.offsetTop > (nodes[0]?.offsetTop ?? 0)),
    1,
  );
  const steps: Record<string, [number, number]> = {
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    ArrowUp: [-across, 0],
    ArrowDown: [across, 0],
    Home: [-nodes.length, 0],
    End: [nodes.length, 0],
  };
  return steps[key] ?? null;
}

interface NodeProps {
  agent: AgentRow;
  row: number;
  tabbable: number;
  colouring: Colouring;
}

const Node = memo(function Node({ agent, row, tabbable, colouring }: NodeProps) {
  const closed = closedFor(agent);
  return (
    <div role="row" aria-rowindex={row + 1} className="heat-node" data-status={agent.status}>
      <div role="rowheader" className="heat-name">
        {agent.agent_id}
      </div>
      {devicesOf(agent).map((slot, column) => {
        const { colour, share } = colouring.of(agent, slot);
        const state = stateOfDevice(slot, closed);
        return (
          <div
            key={`${slot.slot}/${slot.device_id}`}
            role="gridcell"
            className="heat-cell"
            data-place={`${row}-${column}`}
            data-state={state}
            tabIndex={tabbable === column ? 0 : -1}
            aria-label={describe(agent, slot, colouring)}
          >
            {state === "faulty" ? null : (
              <span className={`swatch-${colour}`} style={{ height: `${Math.round(100 * share)}%` }} />
            )}
          </div>
        );
      })}
    </div>
  );
});

/** What is pointed at or focused, in words, with its links. */
function Readout({
  agent,
  device,
  colouring,
}: {
  agent: AgentRow | undefined;
  device: number;
  colouring: Colouring;
}) {
  const slot = agent ? devicesOf(agent)[device] : undefined;
  if (!agent || !slot) {
    return <p className="heat-readout dim">–</p>;
  }
  const named = (slot.holders ?? []).filter((holder) => !holder.hidden && holder.session_id);
  return (
    <p className="heat-readout wrap">
      <Link to="/agents/$id" params={{ id: agent.agent_id }} className="link">
        {agent.agent_id}
      </Link>{" "}
      {describe(agent, slot, colouring).slice(agent.agent_id.length)}
      {named.map((holder) => (
        <span key={holder.kernel_id}>
          {" "}
          <Link to="/sessions/$ref" params={{ ref: holder.session_id ?? "" }} className="link">
            {visible(holder.session ?? "")}
          </Link>
        </span>
      ))}
    </p>
  );
}

/** How many devices are free, and where the most of them are on one node. */
export function FreeBlock({ agents }: { agents: AgentRow[] }) {
  const found = useMemo(() => {
    let [free, total, largest, where] = [0, 0, 0, ""];
    for (const agent of agents) {
      const devices = devicesOf(agent);
      const here = closedFor(agent)
        ? 0
        : devices.filter((slot) => slot.healthy && slot.used === 0 && slot.capacity > 0).length;
      total += devices.length;
      free += here;
      if (here > largest) {
        [largest, where] = [here, agent.agent_id];
      }
    }
    return { free, total, largest, where };
  }, [agents]);
  return (
    <p className="free-line">
      <strong>{t("grid.freeOf", { free: found.free, count: found.total })}</strong>{" "}
      {found.largest > 0 ? (
        <>
          {t("grid.block", { count: found.largest })}{" "}
          <Link to="/agents/$id" params={{ id: found.where }} className="link">
            {found.where}
          </Link>
        </>
      ) : null}
    </p>
  );
}
