import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Schemas } from "@/api/client";
import { endpointLoadQuery, type LoadRange } from "@/api/queries";
import { Chart } from "@/charts/Chart";
import { LoadSection, spanOf, stepOf } from "@/charts/LoadSection";
import { onOneAxis } from "@/charts/series";
import { units } from "@/charts/units";
import { t } from "@/texts";

type Load = Schemas["EndpointLoad"];
type Values = (number | null)[];

/** Requests, errors, first token, tokens, queue and replicas over time. */
export default function EndpointLoad({ name }: { name: string }) {
  const [range, setRange] = useState<LoadRange>("1h");
  const load = useQuery(endpointLoadQuery(name, range));
  return (
    <LoadSection range={range} onRange={setRange} load={load} charts={(load) => <Charts load={load} />} />
  );
}

function Charts({ load }: { load: Load }) {
  const charts = useMemo(() => seriesOf(load), [load]);
  const span = useMemo(() => spanOf(load), [load]);
  return (
    <>
      <Chart title={t("load.requests")} {...charts.requests} span={span} unit={units.plain} />
      <Chart title={t("load.errors")} {...charts.errors} span={span} unit={units.plain} />
      <Chart title={t("load.firstToken")} {...charts.firstToken} span={span} unit={units.milliseconds} />
      <Chart title={t("load.tokens")} {...charts.tokens} span={span} unit={units.plain} />
      <Chart title={t("load.queue")} {...charts.queue} span={span} unit={units.whole} />
      <Chart title={t("load.replicas")} {...charts.replicas} span={span} unit={units.whole} />
    </>
  );
}

function seriesOf(load: Load) {
  const { at = [], covered_s = [] } = load;
  const step = stepOf(load);
  const chart = (lines: Record<string, Values>) =>
    onOneAxis(
      Object.entries(lines).map(([name, values]) => ({ name, at, values })),
      step,
    );
  /** Per `seconds`. Nothing is known about a step in which nothing was counted. */
  const rate = (sums: number[] | undefined, seconds: number): Values =>
    (sums ?? []).map((sum, index) => (covered_s[index] ? (seconds * sum) / covered_s[index] : null));
  return {
    requests: chart({ [t("load.requestsLine")]: rate(load.requests, 1) }),
    errors: chart({ [t("load.errorsLine")]: rate(load.errors, 60) }),
    firstToken: chart({
      [t("load.mean")]: load.first_token_ms ?? [],
      [t("load.peak")]: load.first_token_peak_ms ?? [],
    }),
    tokens: chart({
      [t("load.tokensIn")]: rate(load.tokens_in, 1),
      [t("load.tokensOut")]: rate(load.tokens_out, 1),
    }),
    queue: chart({
      [t("load.running")]: load.running ?? [],
      [t("load.waiting")]: load.waiting ?? [],
      [t("load.held")]: load.held ?? [],
    }),
    replicas: chart({ [t("load.wanted")]: load.wanted ?? [], [t("load.ready")]: load.ready ?? [] }),
  };
}
