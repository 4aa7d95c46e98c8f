// Sixteen lines: eight distinguishable colours, then the same colours dashed.
export const LINES = 16;

/** Values by time: at `at[i]`, in Unix seconds, it is `values[i]`. */
export interface Column {
  name: string;
  at: number[];
  values: (number | null)[];
}

export interface Line {
  name: string;
  values: (number | null)[];
}

export interface Series {
  times: number[];
  lines: Line[];
  stepS: number;
}

/** One time axis for all columns, with a step of `stepS` seconds. Lines have gaps where nothing was recorded. */
export function onOneAxis(columns: Column[], stepS: number): Series {
  const shown = columns.slice(0, LINES);
  const known = [...new Set(shown.flatMap((column) => column.at))].sort((a, b) => a - b);
  const gaps = known.filter((time, index) => index > 0 && time - (known[index - 1] ?? time) > 1.5 * stepS);
  const times = [...known, ...gaps.map((time) => time - stepS / 2)].sort((a, b) => a - b);
  return {
    times,
    stepS,
    lines: shown.map(({ name, at, values }) => {
      const byTime = new Map(at.map((time, index) => [time, values[index] ?? null]));
      return { name, values: times.map((time) => byTime.get(time) ?? null) };
    }),
  };
}

/** Whether any line has a value. */
export const hasValues = (lines: Line[]) =>
  lines.some(({ values }) => values.some((value) => value !== null));
