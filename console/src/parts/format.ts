import { serverNow } from "@/api/connection";
import { LOCALES, number } from "@/texts/locale";

export { number };

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(amount: number): string {
  let value = amount;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value)} ${UNITS[unit]}`;
}

/** An amount in the currency of the installation (ISO 4217); without one, a number. Small amounts have more digits. */
export function money(value: number, currency: string, digits?: number): string {
  const shown = digits ?? (value !== 0 && Math.abs(value) < 0.1 ? 4 : 2);
  if (currency === "") {
    return number(value, shown);
  }
  return new Intl.NumberFormat([...LOCALES], {
    style: "currency",
    currency,
    minimumFractionDigits: shown,
    maximumFractionDigits: shown,
  }).format(value);
}

/** An amount of a slot in base units, as people write it: 1.5, 4 GiB. */
export function amount(slot: string, value: number): string {
  if (slot === "mem") {
    return bytes(value);
  }
  return slot.endsWith(".device") ? number(value) : number(value / 1000, 3);
}

export function slotsText(slots: Record<string, number>): string {
  const names = Object.keys(slots).sort(compareSlots);
  return names.map((slot) => `${amount(slot, slots[slot] ?? 0)} ${slotName(slot)}`).join(", ");
}

/** GPUs and the like first, then cpu and mem. */
export function compareSlots(a: string, b: string): number {
  const rank = (slot: string) => (slot === "cpu" ? 1 : slot === "mem" ? 2 : 0);
  return rank(a) - rank(b) || a.localeCompare(b);
}

export function slotName(slot: string): string {
  return slot === "cpu" ? "CPU" : slot === "mem" ? "memory" : slot.replace(/\.device$/, "");
}

const STEPS: [number, Intl.RelativeTimeFormatUnit][] = [
  [60, "second"],
  [3600, "minute"],
  [86_400, "hour"],
  [Number.POSITIVE_INFINITY, "day"],
];
// Words, so in the language of the texts.
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** "3 min. ago", on the manager's clock. */
export function relative(iso: string): string {
  const seconds = (Date.parse(iso) - serverNow()) / 1000;
  let unitSeconds = 1;
  for (const [limit, unit] of STEPS) {
    if (Math.abs(seconds) < limit) {
      return RELATIVE.format(Math.round(seconds / unitSeconds), unit);
    }
    unitSeconds = limit;
  }
  return iso;
}

/** "2 h 5 min" between two times. */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor((seconds % 86_400) / 3600), "h"],
    [Math.floor((seconds % 3600) / 60), "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) {
    return "0 s";
  }
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

// The clock has 24 hours everywhere, as in charts.
const CLOCK = new Intl.DateTimeFormat([...LOCALES], { timeStyle: "medium", hourCycle: "h23" });
const DATE_TIME = new Intl.DateTimeFormat([...LOCALES], {
  dateStyle: "medium",
  timeStyle: "medium",
  hourCycle: "h23",
});

export function dateTime(iso: string): string {
  return DATE_TIME.format(new Date(iso));
}

/** The date, weekday and minute of a time, in the zone of the browser or in `zone`. */
export function moment(iso: string, zone?: string): string {
  return new Intl.DateTimeFormat([...LOCALES], {
    weekday: "short",
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    ...(zone ? { timeZone: zone, timeZoneName: "short" } : {}),
  }).format(new Date(iso));
}

export function clockTime(at: number): string {
  return CLOCK.format(new Date(at));
}

// Control and bidirectional characters could hide or reorder the text of a name or log.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** `text` with its invisible characters shown as code points. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** "lacks-resources" as "lacks resources". */
export function reasonText(reason: string): string {
  return reason.replaceAll("-", " ");
}
