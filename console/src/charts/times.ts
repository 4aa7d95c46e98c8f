import { LOCALES } from "@/texts/locale";

// The parts of a date are in the order of the reader's locale; the clock has 24 hours everywhere.
export type Zone = "UTC" | undefined;

function formats(zone: Zone) {
  const of = (options: Intl.DateTimeFormatOptions) =>
    new Intl.DateTimeFormat([...LOCALES], { ...options, ...(zone ? { timeZone: zone } : {}) });
  return {
    clock: of({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
    day: of({ day: "numeric", month: "short" }),
    month: of({ month: "short", year: "numeric" }),
    full: of({ dateStyle: "medium", timeStyle: "short", hourCycle: "h23" }),
    date: of({ dateStyle: "medium" }),
  };
}

const LOCAL = formats(undefined);
const UTC = formats("UTC");
const of = (zone: Zone) => (zone === "UTC" ? UTC : LOCAL);
const DAY_S = 86_400;

/** One time, in Unix seconds, in full. `stepS`: the length of the step that begins then. */
export function timeText(at: number, stepS: number, zone: Zone): string {
  const date = new Date(at * 1000);
  if (stepS >= 28 * DAY_S) {
    return of(zone).month.format(date);
  }
  return (stepS >= DAY_S ? of(zone).date : of(zone).full).format(date);
}

/** The labels of ticks: times of day with the date below where it changes, or dates. */
export function timeLabels(splits: number[], distanceS: number, zone: Zone): string[] {
  const format = of(zone);
  if (distanceS >= 28 * DAY_S) {
    return splits.map((at) => format.month.format(at * 1000));
  }
  if (distanceS >= DAY_S) {
    return splits.map((at) => format.day.format(at * 1000));
  }
  let before = "";
  return splits.map((at) => {
    const day = format.day.format(at * 1000);
    const isNew = day !== before;
    before = day;
    return format.clock.format(at * 1000) + (isNew ? `\n${day}` : "");
  });
}
