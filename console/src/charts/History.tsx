import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Schemas } from "@/api/client";
import { type HistoryRange, historyRanges, occupancyHistoryQuery } from "@/api/queries";
import { compareSlots, slotName } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { Chart } from "./Chart";
import { RangeControl } from "./Range";
import { type Column, onOneAxis } from "./series";
import { units } from "./units";

type Found = Schemas["OccupancyHistory"];
type GroupHistory = Schemas["GroupHistory"];

const STEPS_S = { minute: 60, hour: 3600, day: 86_400 };

/** What was in use and what waited over time, by slot for one group, or by group for all. */
export default function History({ group }: { group?: string }) {
  const [range, setRange] = useState<HistoryRange>("6h");
  const history = useQuery(occupancyHistoryQuery(range, group));
  return (
    <Section
      title={t("history.title")}
      actions={<RangeControl ranges={historyRanges} value={range} onChange={setRange} />}
    >
      <Loaded query={history} height={220}>
        {(found) => <Charts history={found} group={group} />}
      </Loaded>
    </Section>
  );
}

function Charts({ history, group }: { history: Found; group: string | undefined }) {
  const [used, waiting] = useMemo(() => {
    const one = group === undefined ? undefined : history.groups.find(({ name }) => name === group);
    const columns = one ? ofGroup(one) : ofGroups(history.groups);
    const step = STEPS_S[history.step];
    return [onOneAxis(columns.used, step), onOneAxis(columns.waiting, step)] as const;
  }, [history, group]);
  const span = useMemo(
    () => [Date.parse(history.since) / 1000, Date.parse(history.until) / 1000] as const,
    [history],
  );
  if (used.times.length === 0 && waiting.times.length === 0) {
    return <Empty title={t("history.none")}>{t("history.noneText")}</Empty>;
  }
  const waitingTitle = t(group === undefined ? "history.waiting" : "history.sessions");
  return (
    <div className="columns">
      <Chart title={t("history.used")} {...used} span={span} unit={units.percent} />
      <Chart title={waitingTitle} {...waiting} span={span} unit={units.whole} />
    </div>
  );
}

const share = (capacity: number, used: number) => (capacity > 0 ? (100 * used) / capacity : 0);

function ofGroup(group: GroupHistory): { used: Column[]; waiting: Column[] } {
  const { at = [], pending = [], running = [] } = group.queue;
  return {
    used: Object.keys(group.slots ?? {})
      .sort(compareSlots)
      .map((slot) => {
        const { at = [], capacity = [], used = [] } = group.slots?.[slot] ?? {};
        const values = used.map((value, index) => share(capacity[index] ?? 0, value));
        return { name: slotName(slot), at, values };
      }),
    waiting: [
      { name: t("history.pending"), at, values: pending },
      { name: t("history.running"), at, values: running },
    ],
  };
}

/** By group: the sum of its devices, or its processors if it has no devices. */
function ofGroups(groups: GroupHistory[]): { used: Column[]; waiting: Column[] } {
  return {
    used: groups.map((group) => {
      const slots = group.slots ?? {};
      const devices = Object.keys(slots).filter((slot) => slot !== "cpu" && slot !== "mem");
      const sums = new Map<number, [capacity: number, used: number]>();
      for (const slot of devices.length > 0 ? devices : Object.keys(slots).filter((name) => name === "cpu")) {
        const { at = [], capacity = [], used = [] } = slots[slot] ?? {};
        at.forEach((time, index) => {
          const [all, taken] = sums.get(time) ?? [0, 0];
          sums.set(time, [all + (capacity[index] ?? 0), taken + (used[index] ?? 0)]);
        });
      }
      const at = [...sums.keys()].sort((a, b) => a - b);
      return { name: group.name, at, values: at.map((time) => share(...(sums.get(time) ?? [0, 0]))) };
    }),
    waiting: groups.map(({ name, queue }) => ({ name, at: queue.at ?? [], values: queue.pending ?? [] })),
  };
}
