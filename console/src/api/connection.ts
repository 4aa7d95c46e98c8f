import { useSyncExternalStore } from "react";

/** `lost`: the manager does not answer. `behindMs`: the manager's clock minus the browser's. */
export interface Connection {
  lost: boolean;
  since: number;
  live: boolean;
  behindMs: number;
}

let state: Connection = { lost: false, since: Date.now(), live: false, behindMs: 0 };
const listeners = new Set<() => void>();
const recovered = new Set<() => void>();
let probing = false;

function change(next: Partial<Connection>) {
  state = { ...state, ...next };
  for (const listener of listeners) {
    listener();
  }
}

/** Call `callback` when the manager answers again after an outage. */
export function onRecovery(callback: () => void): () => void {
  recovered.add(callback);
  return () => recovered.delete(callback);
}

export function noteAnswer(date: string | null) {
  if (date !== null) {
    const behindMs = Date.parse(date) + 500 - Date.now();
    // The header is in whole seconds. Smaller changes are noise and would redraw every age.
    if (Math.abs(behindMs - state.behindMs) > 2000) {
      change({ behindMs });
    }
  }
  if (state.lost) {
    change({ lost: false, since: Date.now() });
    for (const callback of recovered) {
      callback();
    }
  }
}

export function noteSilence() {
  if (!state.lost) {
    change({ lost: true, since: Date.now() });
  }
  if (!probing) {
    probing = true;
    void probe();
  }
}

export function noteLive(live: boolean) {
  if (live !== state.live) {
    change({ live });
  }
}

export const isLive = () => state.live && !state.lost;

/** 1, 2, 4 … 30 seconds with full jitter, so that not all consoles reconnect at the same moment. */
export function backoffMs(failures: number): number {
  return Math.max(250, Math.random() * Math.min(30_000, 1000 * 2 ** failures));
}

async function probe() {
  for (let failures = 0; state.lost; failures += 1) {
    await new Promise((resolve) => window.setTimeout(resolve, backoffMs(failures)));
    try {
      const answer = await fetch("/version", { cache: "no-store" });
      if (answer.ok) {
        noteAnswer(answer.headers.get("date"));
      }
    } catch {
      // It still does not answer.
    }
  }
  probing = false;
}

/** The time on the manager's clock, in milliseconds. */
export function serverNow(): number {
  return Date.now() + state.behindMs;
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useConnection(): Connection {
  return useSyncExternalStore(subscribe, () => state);
}
