import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { t } from "@/texts";
import { hasValues, type Line, type Series } from "./series";
import { timeLabels, timeText, type Zone } from "./times";
import type { Unit } from "./units";

// The least distance of two labels of the time axis, in pixels.
const LABEL_PX = 76;
const COLOURS = 8;
const DAY_S = 86_400;

interface Props extends Series {
  title: string;
  unit: Unit;
  /** Lines for values at a time; stacked bars for sums over steps. */
  kind?: "lines" | "bars";
  height?: number;
  /** The range of the time axis in Unix seconds; by default from the first value to the last. */
  span?: readonly [number, number];
  /** By default that of the reader. */
  zone?: Zone;
}

/**
 * Values over time. Arrow keys move from one time to the next, and a screen reader reads what is there. The canvas
 * uses the page's colours, so it is redrawn when the scheme changes.
 */
export function Chart(props: Props) {
  const { title, times, lines, unit, stepS, kind = "lines", height = 180, span, zone } = props;
  const box = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const scheme = useComputedColorScheme("light");
  const summary = useId();
  // biome-ignore lint/correctness/useExhaustiveDependencies: the scheme changes the colours that are read
  useEffect(() => {
    const element = box.current;
    if (!element) {
      return;
    }
    const chart = draw(element, { times, lines, unit, stepS, kind, height, span, zone });
    drawn.current = chart;
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      drawn.current = null;
    };
  }, [times, lines, unit, stepS, kind, height, span, zone, scheme]);

  const last = times.length - 1;
  const shown = Math.min(at ?? last, last);
  const move = (event: KeyboardEvent) => {
    const to = { ArrowLeft: shown - 1, ArrowRight: shown + 1, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) {
      return;
    }
    event.preventDefault();
    const index = Math.max(0, Math.min(last, to));
    setAt(index);
    const chart = drawn.current;
    chart?.setCursor({ left: chart.valToPos(times[index] ?? 0, "x"), top: 0 });
  };

  if (!hasValues(lines)) {
    return (
      <figure className="chart-figure">
        <figcaption className="part-title">{title}</figcaption>
        <p className="chart-none">{t("chart.empty")}</p>
      </figure>
    );
  }
  return (
    <figure className="chart-figure">
      <figcaption className="part-title">{title}</figcaption>
      <div
        ref={box}
        className="chart"
        data-kind={kind}
        role="slider"
        tabIndex={0}
        aria-label={t("chart.label", { title })}
        aria-describedby={summary}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, last)}
        aria-valuenow={Math.max(0, shown)}
        aria-valuetext={last < 0 ? t("chart.empty") : readout(props, shown)}
        onKeyDown={move}
      />
      <span id={summary} className="only-read">
        {summaryOf(props)}
      </span>
    </figure>
  );
}

/** What there is at one time, for screen readers. */
function readout({ times, lines, unit, stepS, zone }: Props, index: number): string {
  const values = lines.map(({ name, values }) => {
    const value = values[index];
    return `${name} ${value == null ? t("chart.noValue") : unit.text(value)}`;
  });
  return `${timeText(times[index] ?? 0, stepS, zone)}: ${values.join(", ")}`;
}

/** The newest, the smallest and the largest value of each line, for screen readers. */
function summaryOf({ lines, unit }: Props): string {
  const parts = lines.flatMap(({ name, values }) => {
    const known = values.filter((value) => value !== null);
    const last = known.at(-1);
    if (last === undefined) {
      return [];
    }
    const [least, most] = known.reduce(
      ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
      [last, last],
    );
    return [
      t("chart.range", { name, last: unit.text(last), least: unit.text(least), most: unit.text(most) }),
    ];
  });
  return parts.length > 0 ? parts.join(" ") : t("chart.empty");
}

type Drawn = Required<Pick<Props, "times" | "lines" | "unit" | "stepS" | "kind" | "height">> &
  Pick<Props, "span" | "zone">;

function draw(element: HTMLElement, props: Drawn): uPlot {
  const { times, lines, unit, stepS, kind, height, span, zone } = props;
  const colours = colourReader(element);
  const isBars = kind === "bars";
  const axis = {
    stroke: colours("--ink-dim"),
    grid: { stroke: colours("--line"), width: 1 },
    ticks: { show: false },
    font: `12px ${getComputedStyle(element).fontFamily}`,
  };
  // The tallest bar of a stack is drawn first, so that the lower ones cover it.
  const order = lines.map((_, index) => index);
  const heights = isBars ? stacked(lines) : lines.map((line) => line.values);
  if (isBars) {
    order.reverse();
  }
  return new uPlot(
    {
      width: element.clientWidth,
      height,
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true },
      scales: {
        x: { range: (_chart, low, high) => timeRange(low, high, { span, stepS, isBars }) },
        y: { range: (_chart, _low, high) => [0, topOf(unit, high ?? 0)] },
      },
      axes: [
        {
          ...axis,
          size: 42,
          space: LABEL_PX,
          ...(isBars ? { splits: (chart: uPlot) => barTicks(chart, times) } : {}),
          values: (_chart, splits) => timeLabels(splits, distanceOf(splits, stepS, isBars), zone),
        },
        {
          ...axis,
          size: (_chart, values) => 14 + 7.2 * Math.max(4, ...(values ?? []).map((value) => value.length)),
          ...(unit.steps ? { incrs: unit.steps } : {}),
          values: (_chart, splits, _axis, _space, step) => splits.map((value) => unit.tick(value, step)),
        },
      ],
      series: [
        {
          label: t("chart.time"),
          value: (_chart: uPlot, value: number | null) =>
            value === null ? "–" : timeText(value, stepS, zone),
        },
        ...order.map((index) => {
          const colour = colours(`--share-${index % COLOURS}`);
          return {
            label: lines[index]?.name ?? "",
            stroke: colour,
            width: isBars ? 0 : 2,
            ...(isBars
              ? {
                  fill: colour,
                  paths: uPlot.paths.bars?.({ align: 1, size: [0.8, 64] }),
                  points: { show: false },
                }
              : {
                  dash: index < COLOURS ? [] : [6, 4],
                  points: {
                    show: false,
                    filter: (_chart: uPlot, series: number) => alone(lines[order[series - 1] ?? 0]),
                  },
                }),
            value: (_chart: uPlot, _value: number | null, _series: number, at: number | null) => {
              const value = at === null ? null : lines[index]?.values[at];
              return value == null ? "–" : unit.text(value);
            },
          } as uPlot.Series;
        }),
      ],
      hooks: {
        // Without a cursor, the legend shows the newest values.
        ready: [showNewest],
        setCursor: [showNewest],
        // What the axis says, for tests: a canvas has no text.
        drawAxes: [
          (chart: uPlot) => {
            const labels = (chart.axes[1] as { _values?: string[] })._values ?? [];
            element.dataset.ticks = labels.join("|");
            element.dataset.times = ((chart.axes[0] as { _values?: string[] })._values ?? [])
              .join("|")
              .replaceAll("\n", " ");
          },
        ],
      },
    },
    [times, ...order.map((index) => heights[index] ?? [])],
    element,
  );
}

function showNewest(chart: uPlot) {
  const last = chart.data[0].length - 1;
  if (chart.cursor.idx == null && last >= 0) {
    chart.setLegend({ idx: last }, false);
  }
}

/** For each line, its value on top of those of the lines before it. */
function stacked(lines: Line[]): (number | null)[][] {
  const sums: number[] = [];
  return lines.map(({ values }) =>
    values.map((value, index) => {
      sums[index] = (sums[index] ?? 0) + (value ?? 0);
      return sums[index];
    }),
  );
}

function topOf(unit: Unit, largest: number): number {
  if (unit.top) {
    return unit.top(largest);
  }
  return largest > 0 ? largest * 1.1 : 1;
}

function timeRange(
  low: number,
  high: number,
  { span, stepS, isBars }: { span: Props["span"]; stepS: number; isBars: boolean },
): [number, number] {
  if (span) {
    return [span[0], span[1]];
  }
  return [low, high + (isBars || low === high ? stepS : 0)];
}

/** The beginnings of as many bars as have room for a label. */
function barTicks(chart: uPlot, times: number[]): number[] {
  const width = chart.bbox.width / window.devicePixelRatio;
  const every = Math.max(1, Math.ceil((times.length * LABEL_PX) / Math.max(width, 1)));
  return times.filter((_, index) => (times.length - 1 - index) % every === 0);
}

/** The distance of ticks in seconds. Bars are labelled like the steps that they are sums of. */
function distanceOf(splits: number[], stepS: number, isBars: boolean): number {
  const between = (splits[1] ?? 0) - (splits[0] ?? 0);
  return isBars ? stepS : between > 0 ? Math.round(between / 3600) * 3600 || between : DAY_S;
}

/** The values of a line that have none beside them: a line cannot show them. */
function alone(line: Line | undefined): number[] {
  const values = line?.values ?? [];
  return values.flatMap((value, index) =>
    value !== null && values[index - 1] == null && values[index + 1] == null ? [index] : [],
  );
}

/** Reads a custom property as a colour that a canvas accepts: the browser resolves light-dark() in `color`. */
function colourReader(element: HTMLElement): (name: string) => string {
  return (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    element.append(probe);
    const colour = window.getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
}
