import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Suspense, useMemo } from "react";
import type { ModelUsage } from "@/api/client";
import { serverNow } from "@/api/connection";
import {
  currencyQuery,
  type UsageDimension,
  type UsageRange,
  usageBucket,
  usageDimensions,
  usageFrom,
  usageOverTimeQuery,
  usageQuery,
  usageRanges,
} from "@/api/queries";
import { RangeControl } from "@/charts/Range";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { useChoice } from "@/parts/listView";
import { Page, Section } from "@/parts/Page";
import { Command, Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { Budgets } from "./Budgets";
import { amountText, MEASURES, type Measure, measureUnit, scaled } from "./units";

const Chart = lazy(() => import("@/charts/Chart").then((found) => ({ default: found.Chart })));

const BUCKET_S = { hour: 3600, day: 86_400, month: 28 * 86_400 };
// As many parts of a bar as there are distinguishable colours.
const LINES = 8;

/** Usage by user and time, and the budgets for it. */
export function Usage() {
  const [by, setBy] = useChoice<UsageDimension>("by", usageDimensions, "project");
  const [range, setRange] = useChoice<UsageRange>("range", usageRanges, "7d");
  const [measure, setMeasure] = useChoice<Measure>("measure", MEASURES, "gpu_ms");
  const totals = useQuery(usageQuery(by, range));
  return (
    <Page title={t("nav.usage")} lead={t("ledger.lead")}>
      <Section
        title={t("ledger.title")}
        actions={<RangeControl ranges={usageRanges} value={range} onChange={setRange} />}
      >
        <div className="filters">
          <Select
            size="xs"
            label={t("ledger.by")}
            allowDeselect={false}
            data={usageDimensions.map((value) => ({ value, label: t(`ledger.${value}`) }))}
            value={by}
            onChange={(value) => setBy(value as UsageDimension)}
          />
          <Select
            size="xs"
            label={t("ledger.measure")}
            allowDeselect={false}
            data={MEASURES.map((value) => ({ value, label: t(`ledger.${value}`) }))}
            value={measure}
            onChange={(value) => setMeasure(value as Measure)}
          />
        </div>
        <Loaded query={totals} height={260}>
          {(page) =>
            page.items.length === 0 ? (
              <Empty title={t("ledger.none")}>{t("ledger.noneText")}</Empty>
            ) : (
              <>
                <OverTime by={by} range={range} measure={measure} rows={page.items} />
                <Totals by={by} measure={measure} rows={page.items} />
                {page.next ? <p className="dim">{t("ledger.more", { count: page.items.length })}</p> : null}
                <Command line={`moorage usage --by ${by} --from ${FROM[range]} --csv`} />
              </>
            )
          }
        </Loaded>
      </Section>
      <Budgets />
    </Page>
  );
}

const FROM: Record<UsageRange, string> = { "1d": "1d", "7d": "7d", "30d": "30d", "1y": "365d" };

/** The subject of a row; a key is shown by its name if it is the user's own. */
function nameOf(by: UsageDimension, row: ModelUsage): string {
  const name = by === "key" ? row.key || row.key_id : row[by];
  return name ? visible(name) : t("ledger.other");
}

/** One part of a bar per row if there are few rows, otherwise one for the total. */
function OverTime({
  by,
  range,
  measure,
  rows,
}: {
  by: UsageDimension;
  range: UsageRange;
  measure: Measure;
  rows: ModelUsage[];
}) {
  const split = rows.length <= LINES;
  const parts = useQuery(usageOverTimeQuery(split ? by : undefined, range));
  return (
    <Loaded query={parts} height={200}>
      {(found) => <Bars rows={found} by={split ? by : undefined} range={range} measure={measure} />}
    </Loaded>
  );
}

function Bars({
  rows,
  by,
  range,
  measure,
}: {
  rows: ModelUsage[];
  by: UsageDimension | undefined;
  range: UsageRange;
  measure: Measure;
}) {
  const { data: currency = "" } = useQuery(currencyQuery);
  const unit = useMemo(() => measureUnit(measure, currency), [measure, currency]);
  const bucket = t(`ledger.per_${usageBucket(range)}`);
  const { times, lines } = useMemo(() => {
    const byName = new Map<string, Map<number, number>>();
    for (const row of rows) {
      const name = by === undefined ? t("ledger.all") : nameOf(by, row);
      const at = Date.parse(row.at ?? "") / 1000;
      const line = byName.get(name) ?? new Map<number, number>();
      byName.set(name, line.set(at, (line.get(at) ?? 0) + scaled(measure, row[measure] ?? 0)));
    }
    const times = everyStep(range, serverNow());
    const lines = [...byName].map(([name, line]) => ({
      name,
      values: times.map((time) => line.get(time) ?? 0),
    }));
    return { times, lines };
  }, [rows, by, range, measure]);
  const title = t("ledger.chart", { measure: t(`ledger.${measure}`), bucket });
  return (
    <Suspense fallback={<div className="chart-space" />}>
      <Chart
        title={title}
        times={times}
        lines={lines}
        stepS={BUCKET_S[usageBucket(range)]}
        unit={unit}
        kind="bars"
        zone="UTC"
      />
    </Suspense>
  );
}

/** The starts of the hours, days or months in the shown period (UTC), in Unix seconds. */
function everyStep(range: UsageRange, now: number): number[] {
  const bucket = usageBucket(range);
  const first = new Date(usageFrom(range));
  first.setUTCMinutes(0, 0, 0);
  if (bucket !== "hour") {
    first.setUTCHours(0);
  }
  if (bucket === "month") {
    first.setUTCDate(1);
  }
  const times = [];
  for (const at = first; at.getTime() <= now; ) {
    times.push(at.getTime() / 1000);
    if (bucket === "month") {
      at.setUTCMonth(at.getUTCMonth() + 1);
    } else {
      at.setTime(at.getTime() + (bucket === "hour" ? 3_600_000 : 86_400_000));
    }
  }
  return times;
}

/** All amounts of each row. The selected measure orders the rows and is drawn as a bar. */
function Totals({ by, measure, rows }: { by: UsageDimension; measure: Measure; rows: ModelUsage[] }) {
  const { data: currency = "" } = useQuery(currencyQuery);
  const ordered = [...rows].sort((a, b) => (b[measure] ?? 0) - (a[measure] ?? 0));
  const most = Math.max(1, ordered[0]?.[measure] ?? 1);
  return (
    <DataTable
      label={t("ledger.title")}
      rows={ordered}
      id={(row) => `${row.key_id ?? ""}/${nameOf(by, row)}`}
      columns={[
        { key: "name", header: t(`ledger.${by}`), cell: (row) => nameOf(by, row) },
        {
          key: "share",
          header: t("ledger.share"),
          cell: (row) => (
            <div className="bar" aria-hidden="true">
              <span style={{ width: `${Math.max(0, (100 * (row[measure] ?? 0)) / most)}%` }} />
            </div>
          ),
        },
        ...MEASURES.map((one) => ({
          key: one,
          header: t(`ledger.${one}`),
          right: true,
          wide: one !== measure,
          cell: (row: ModelUsage) => amountText(one, row[one] ?? 0, currency),
        })),
      ]}
    />
  );
}
