import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Schemas } from "@/api/client";
import { statsQuery } from "@/api/queries";
import { Chart } from "@/charts/Chart";
import { type Column, onOneAxis } from "@/charts/series";
import { units } from "@/charts/units";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";

type Stats = Schemas["SessionStats"];

const STEP_S = 60;

/** Processors and memory by minute, with one line per kernel. */
export default function Usage({ id }: { id: string }) {
  const stats = useQuery(statsQuery(id, "minutes"));
  return <Loaded query={stats}>{(found) => <Charts stats={found} />}</Loaded>;
}

function Charts({ stats }: { stats: Stats }) {
  const { cpu, memory } = useMemo(() => series(stats), [stats]);
  if (cpu.times.length === 0) {
    return <Empty title={t("usage.none")}>{t("usage.noneText")}</Empty>;
  }
  return (
    <div className="columns">
      <Chart title={t("usage.cpu")} {...cpu} unit={units.plain} />
      <Chart title={t("usage.memory")} {...memory} unit={units.bytes} />
    </div>
  );
}

function series(stats: Stats) {
  const kernels = stats.kernels.filter((kernel) => (kernel.spans ?? []).length > 0);
  const columns = (pick: (mean: Schemas["UsageView"]) => number): Column[] =>
    kernels.map(({ hostname, spans = [] }) => ({
      name: hostname,
      at: spans.map((span) => Date.parse(span.at) / 1000),
      values: spans.map((span) => pick(span.mean)),
    }));
  return {
    cpu: onOneAxis(
      columns((mean) => mean.cpu / 1000),
      STEP_S,
    ),
    memory: onOneAxis(
      columns((mean) => mean.memory),
      STEP_S,
    ),
  };
}
