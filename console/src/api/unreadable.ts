import { useSyncExternalStore } from "react";

/** An item of a list that a newer manager has stored: the one that answers cannot read it, or not all of it. */
export interface UnreadableRow {
  kind: string;
  name: string;
  detail: string;
}

interface Listing {
  items?: unknown[];
  unreadable?: UnreadableRow[];
}

const byList = new Map<string, Map<string, UnreadableRow[]>>();
const listeners = new Set<() => void>();
let shown: UnreadableRow[] = [];

/** Of those that are shown as far as they are known, and of those that are left out. */
function rowsOf(path: string, { items = [], unreadable = [] }: Listing): UnreadableRow[] {
  const kind = path.slice(path.lastIndexOf("/") + 1).replace(/s$/, "");
  const partly = (items as { name?: string; needs_newer_manager?: string }[])
    .filter((item) => item.needs_newer_manager)
    .map((item) => ({ kind, name: item.name ?? "", detail: item.needs_newer_manager ?? "" }));
  return [...unreadable, ...partly];
}

/** What an answer says of its items. The first page of a list replaces what was said of all of its pages. */
export function noteUnreadable(url: string, answer: unknown) {
  if (typeof answer !== "object" || answer === null || !("items" in answer)) {
    return;
  }
  const { pathname, search, searchParams } = new URL(url, window.location.origin);
  const found = rowsOf(pathname, answer as Listing);
  const pages = searchParams.has("cursor") ? (byList.get(pathname) ?? new Map()) : new Map();
  if (found.length === 0 && !byList.has(pathname)) {
    return;
  }
  pages.set(search, found);
  byList.set(pathname, pages);
  const rows = [...byList.values()].flatMap((one) => [...one.values()].flat());
  const next = [...new Map(rows.map((row) => [`${row.kind} ${row.name}`, row])).values()];
  if (JSON.stringify(next) !== JSON.stringify(shown)) {
    shown = next;
    for (const listener of listeners) {
      listener();
    }
  }
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useUnreadable(): UnreadableRow[] {
  return useSyncExternalStore(subscribe, () => shown);
}
