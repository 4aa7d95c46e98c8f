import { useSyncExternalStore } from "react";
import { dateTime, relative } from "./format";

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
