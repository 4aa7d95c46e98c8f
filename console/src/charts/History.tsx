import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Schemas } from "@/api/client";
import { type HistoryRange, historyRanges, occupancyHistoryQuery } from "@/api/queries";
import { compareSlots, number, slotName } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { type Line, LineChart } from "./LineChart";

type Found = Schemas["OccupancyHistory"];
type GroupHistory = Schemas["GroupHistory"];
interface Column {
  name: string;
  at: number[];
  values: number[];
}

const STEPS_S = { minute: 60, hour: 3600, day: 86_400 };
// As many lines as there are distinguishable colours.
const LINES = 8;
const percent = (value: number) => `${number(value, 0)} %`;
const count = (value: number) => number(value);

/** What was in use and what waited over time, by slot for one group, or by group for all. */
export default function History({ group }: { group?: string }) {
  const [range, setRange] = useState<HistoryRange>("6h");
  const history = useQuery(occupancyHistoryQuery(range, group));
  return (
    <Section
      title={t("history.title")}
      actions={
        <SegmentedControl
          size="xs"
          transitionDuration={0}
          aria-label={t("history.range")}
          data={historyRanges.map((value) => ({ value, label: t(`history.${value}`) }))}
          value={range}
          onChange={(value) => setRange(value as HistoryRange)}
        />
      }
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
    return [chart(columns.used, step), chart(columns.waiting, step)] as const;
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
      <div>
        <h3 className="part-title">{t("history.used")}</h3>
        <LineChart
          label={summary(t("history.used"), used.lines, percent)}
          {...used}
          span={span}
          format={percent}
        />
      </div>
      <div>
        <h3 className="part-title">{waitingTitle}</h3>
        <LineChart
          label={summary(waitingTitle, waiting.lines, count)}
          {...waiting}
          span={span}
          format={count}
        />
      </div>
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

/** One time axis for all columns. The lines have gaps where nothing was recorded. */
function chart(columns: Column[], stepS: number): { times: number[]; lines: Line[] } {
  const shown = columns.slice(0, LINES);
  const known = [...new Set(shown.flatMap((column) => column.at))].sort((a, b) => a - b);
  const gaps = known.filter((time, index) => index > 0 && time - (known[index - 1] ?? time) > 1.5 * stepS);
  const times = [...known, ...gaps.map((time) => time - stepS / 2)].sort((a, b) => a - b);
  return {
    times,
    lines: shown.map(({ name, at, values }, colour) => {
      const byTime = new Map(at.map((time, index) => [time, values[index] ?? null]));
      return { name, colour, values: times.map((time) => byTime.get(time) ?? null) };
    }),
  };
}

/** The chart's text for screen readers: the newest values. */
function summary(title: string, lines: Line[], format: (value: number) => string): string {
  const last = lines.map(({ name, values }) => `${name} ${format(values.at(-1) ?? 0)}`);
  return t("history.summary", { title, values: last.join(", ") });
}
