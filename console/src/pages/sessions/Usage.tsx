import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Schemas } from "@/api/client";
import { statsQuery } from "@/api/queries";
import { type Line, LineChart } from "@/charts/LineChart";
import { bytes, number } from "@/parts/format";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";

type Stats = Schemas["SessionStats"];

const cores = (value: number) => number(value, 2);

/** Processors and memory by minute, with one line per kernel. */
export default function Usage({ id }: { id: string }) {
  const stats = useQuery(statsQuery(id, "minutes"));
  return <Loaded query={stats}>{(found) => <Charts stats={found} />}</Loaded>;
}

function Charts({ stats }: { stats: Stats }) {
  const { times, cpu, memory } = useMemo(() => series(stats), [stats]);
  if (times.length === 0) {
    return <Empty title={t("usage.none")}>{t("usage.noneText")}</Empty>;
  }
  return (
    <div className="columns">
      <div>
        <h3 className="part-title">{t("usage.cpu")}</h3>
        <LineChart label={t("usage.cpu")} times={times} lines={cpu} format={cores} />
      </div>
      <div>
        <h3 className="part-title">{t("usage.memory")}</h3>
        <LineChart label={t("usage.memory")} times={times} lines={memory} format={bytes} />
      </div>
    </div>
  );
}

function series(stats: Stats): { times: number[]; cpu: Line[]; memory: Line[] } {
  const kernels = stats.kernels.filter((kernel) => (kernel.spans ?? []).length > 0).slice(0, 8);
  const at = (iso: string) => Date.parse(iso) / 1000;
  const all = new Set(kernels.flatMap((kernel) => (kernel.spans ?? []).map((span) => at(span.at))));
  const times = [...all].sort((a, b) => a - b);
  const lines = (pick: (mean: Schemas["UsageView"]) => number): Line[] =>
    kernels.map((kernel, index) => {
      const known = new Map((kernel.spans ?? []).map((span) => [at(span.at), pick(span.mean)]));
      return { name: kernel.hostname, colour: index, values: times.map((time) => known.get(time) ?? null) };
    });
  return { times, cpu: lines((mean) => mean.cpu / 1000), memory: lines((mean) => mean.memory) };
}
