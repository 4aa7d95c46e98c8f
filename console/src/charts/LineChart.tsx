import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  name: string;
  values: (number | null)[];
  colour: number;
}

interface Props {
  label: string;
  times: number[];
  lines: Line[];
  height?: number;
  /** The range of the time axis in Unix seconds; by default from the first value to the last. */
  span?: readonly [number, number];
  format: (value: number) => string;
}

/** Values over time. Its canvas uses the page's colours, so it is redrawn when the scheme changes. */
export function LineChart({ label, times, lines, height = 180, span, format }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the scheme changes the colours that are read
  useEffect(() => {
    const element = box.current;
    if (!element) {
      return;
    }
    const colours = colourReader(element);
    const axis = {
      stroke: colours("--ink-dim"),
      grid: { stroke: colours("--line"), width: 1 },
      ticks: { show: false },
    };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height,
        cursor: { y: false },
        legend: { live: true },
        scales: {
          x: span ? { range: () => [...span] } : {},
          y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
        },
        axes: [axis, { ...axis, size: 62, values: (_chart, values) => values.map((value) => format(value)) }],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.name,
            stroke: colours(`--share-${line.colour}`),
            width: 2,
            points: { show: times.length < 3 },
            value: (_chart: uPlot, value: number | null) => (value === null ? "–" : format(value)),
          })),
        ],
      },
      [times, ...lines.map((line) => line.values)],
      element,
    );
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
    };
  }, [times, lines, height, span, format, scheme]);
  return <div ref={box} className="chart" role="img" aria-label={label} />;
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
