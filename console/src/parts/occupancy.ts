import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { number, visible } from "./format";

type AgentRow = Schemas["AgentOccupancy"];
type Slot = Schemas["OccupiedSlot"];
type Stats = Schemas["AgentStats"];

export const COLOUR_BY = ["project", "user", "allocation", "load", "memory"] as const;
export type ColourBy = (typeof COLOUR_BY)[number];

/** How the map colours a device, and what it says about it. `share`: how much of the cell is filled. */
export interface Colouring {
  by: ColourBy;
  /** Names with their colours, for the legend; empty for shades. */
  names: Map<string, string>;
  of: (agent: AgentRow, slot: Slot) => { colour: string; share: number };
  /** A measured value in words; empty if it is not the subject, or not known. */
  value: (agent: AgentRow, slot: Slot) => string;
}

const COLOURS = 8;
const SHADES = 5;

export const isDevice = (slot: Slot) => slot.device_id !== "";
export const devicesOf = (agent: AgentRow) => agent.slots.filter(isDevice);
export const closedFor = (agent: AgentRow) =>
  agent.cordon !== "" || agent.draining || agent.status !== "ALIVE";

export function stateOfDevice(slot: Slot, closed: boolean): "faulty" | "closed" | "open" {
  return !slot.healthy ? "faulty" : closed && slot.used === 0 ? "closed" : "open";
}

/** Colours of the projects (or users) that use the most; all others share one. */
export function palette(agents: AgentRow[], by: "project" | "user"): Map<string, string> {
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

const usedShare = (slot: Slot) => Math.min(1, slot.used / Math.max(slot.capacity, 1));

/** One of five shades, of which 0 is nothing at all. */
export const shade = (share: number) => `shade-${Math.min(SHADES, Math.ceil(share * SHADES))}`;

const percent = (share: number) => `${number(100 * share, 0)} %`;

/** By project or user: who uses the most of the device. By measurement: how much of it works, or is filled. */
export function colouringOf(agents: AgentRow[], by: ColourBy, stats: Stats[] | undefined): Colouring {
  if (by === "project" || by === "user") {
    const names = palette(agents, by);
    return {
      by,
      names,
      of: (_, slot) => {
        const most = [...(slot.holders ?? [])].sort((a, b) => b.amount - a.amount)[0];
        const colour = most ? (most.hidden ? "other" : (names.get(most[by] ?? "") ?? "other")) : "free";
        return { colour, share: usedShare(slot) };
      },
      value: () => "",
    };
  }
  const measured = new Map<string, number>();
  for (const node of by === "allocation" ? [] : (stats ?? [])) {
    for (const device of node.devices) {
      const value =
        by === "load"
          ? device.gpu === null || device.gpu === undefined
            ? null
            : device.gpu / 1000
          : device.memory === null || device.memory === undefined || device.memory_bytes === 0
            ? null
            : device.memory / device.memory_bytes;
      if (value !== null) {
        measured.set(`${node.id} ${device.device_id}`, Math.min(1, value));
      }
    }
  }
  const shareOf = (agent: AgentRow, slot: Slot) =>
    by === "allocation" ? usedShare(slot) : measured.get(`${agent.agent_id} ${slot.device_id}`);
  return {
    by,
    names: new Map(),
    of: (agent, slot) => {
      const share = shareOf(agent, slot);
      return share === undefined ? { colour: "unknown", share: 1 } : { colour: shade(share), share };
    },
    value: (agent, slot) => {
      const share = shareOf(agent, slot);
      return by === "allocation"
        ? ""
        : t(`grid.value_${by}`, { value: share === undefined ? t("grid.unknown") : percent(share) });
    },
  };
}

/** "agent-7 GPU 3: 0.5 of 1 in use: alice/train-12". */
export function describe(agent: AgentRow, slot: Slot, colouring?: Colouring): string {
  const place = t("grid.place", {
    agent: agent.agent_id,
    device: slot.device_id,
    model: slot.model || slot.slot,
  });
  if (!slot.healthy) {
    return `${place}: ${t("grid.faultyBecause", { reason: slot.unhealthy_reason || t("grid.faulty") })}`;
  }
  const use = t("usage.of", { used: number(slot.used / 1000, 3), capacity: number(slot.capacity / 1000, 3) });
  const names = (slot.holders ?? []).map((holder) =>
    holder.hidden ? t("grid.hidden") : visible(`${holder.project}/${holder.session} (${holder.user})`),
  );
  const value = colouring?.value(agent, slot) ?? "";
  return [
    `${place}: ${use}${names.length > 0 ? `: ${names.join(", ")}` : ""}`,
    ...(value ? [value] : []),
    ...(closedFor(agent) ? [t("grid.closed")] : []),
  ].join("; ");
}
