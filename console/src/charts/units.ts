import { money, number } from "@/parts/format";

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** How the values of a chart are written and which distances its ticks may have. */
export interface Unit {
  /** A value in the legend and in the summary. */
  text: (value: number) => string;
  /** A tick of the axis; `step`: the distance between two ticks, from which its decimals follow. */
  tick: (value: number, step: number) => string;
  /** The possible distances between ticks; by default 1, 2 and 5 times the powers of ten. */
  steps?: number[];
  /** The end of the axis, for the largest value; by default a little more than that. */
  top?: (largest: number) => number;
}

/** As many decimals as multiples of this distance have. */
function decimals(step: number): number {
  let digits = 0;
  while (digits < 8 && Math.abs(step - Number(step.toFixed(digits))) > step * 1e-6) {
    digits += 1;
  }
  return digits;
}

// A value is written with three significant digits, large ones in full.
function fine(value: number): string {
  const size = Math.abs(value);
  return number(value, size === 0 || size >= 100 ? 0 : Math.min(6, 2 - Math.floor(Math.log10(size))));
}

const plain: Unit = {
  text: fine,
  tick: (value, step) => number(value, decimals(step)),
};

/** A number followed by a unit, such as °C. */
const withUnit = (unit: string): Unit => ({
  text: (value) => `${fine(value)} ${unit}`,
  tick: (value, step) => `${number(value, decimals(step))} ${unit}`,
});

/** Few percent have an axis of their own; otherwise it ends at 100 %. */
const percent: Unit = {
  ...withUnit("%"),
  top: (largest) => (largest > 2 ? Math.max(100, largest) : largest > 0 ? largest * 1.1 : 1),
};

/** Whole things, such as replicas: no tick lies between two of them. */
const whole: Unit = {
  text: fine,
  tick: (value) => number(value, 0),
  steps: [1, 2, 5]
    .flatMap((digit) => Array.from({ length: 10 }, (_, power) => digit * 10 ** power))
    .sort((a, b) => a - b),
  top: (largest) => Math.max(1, largest * 1.1),
};

export function inCurrency(currency: string): Unit {
  return {
    text: (value) => money(value, currency),
    tick: (value, step) => money(value, currency, decimals(step)),
  };
}

const bytes: Unit = {
  text: (value) => binary(value, value, 1),
  tick: (value, step) => binary(value, Math.max(value, step), 3),
  steps: Array.from({ length: 60 }, (_, power) => 2 ** power),
};

function binary(value: number, size: number, digits: number): string {
  const unit = size < 1 ? 0 : Math.min(BINARY.length - 1, Math.floor(Math.log2(size) / 10));
  return `${number(value / 1024 ** unit, digits)} ${BINARY[unit]}`;
}

/** Milliseconds; from a second on, as seconds. */
const milliseconds: Unit = {
  text: (value) => (value < 1000 ? `${fine(value)} ms` : `${fine(value / 1000)} s`),
  tick: (value, step) =>
    step < 1000 && value < 1000
      ? `${number(value, decimals(step))} ms`
      : `${number(value / 1000, decimals(step / 1000))} s`,
};

export const units = {
  plain,
  percent,
  whole,
  bytes,
  milliseconds,
  watts: withUnit("W"),
  celsius: withUnit("°C"),
};
