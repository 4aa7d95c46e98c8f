import { useSyncExternalStore } from "react";
import { serverNow } from "@/api/connection";
import { dateTime, duration, moment, relative } from "./format";

// One timer redraws all ages on the page.
const listeners = new Set<() => void>();
let ticks = 0;
window.setInterval(() => {
  ticks += 1;
  for (const listener of listeners) {
    listener();
  }
}, 10_000);

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useTicks(): number {
  return useSyncExternalStore(subscribe, () => ticks);
}

/** An age such as "3 min. ago"; its title has the date. */
export function Age({ at }: { at: string | null | undefined }) {
  useTicks();
  if (!at) {
    return <span>–</span>;
  }
  return (
    <time dateTime={at} title={dateTime(at)}>
      {relative(at)}
    </time>
  );
}

/** How long something lasted, or has lasted so far; a dash if it has not started. */
export function Lasted({
  from,
  until,
}: {
  from: string | null | undefined;
  until: string | null | undefined;
}) {
  useTicks();
  if (!from) {
    return <span>–</span>;
  }
  const end = until ? Date.parse(until) : serverNow();
  return <span title={dateTime(from)}>{duration(end - Date.parse(from))}</span>;
}

/** A date and time, such as "30 Nov 2026, 07:30"; in a time zone of its own if `zone` is given. */
export function Moment({ at, zone }: { at: string; zone?: string }) {
  return (
    <time dateTime={at} title={relative(at)}>
      {moment(at, zone)}
    </time>
  );
}
