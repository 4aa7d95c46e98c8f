import { useSyncExternalStore } from "react";

/** A list item stored by a newer manager, which the one that answers cannot read completely. */
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

/** Items that are shown as far as they are known, and items that are left out. */
function rowsOf(path: string, { items = [], unreadable = [] }: Listing): UnreadableRow[] {
  const kind = path.slice(path.lastIndexOf("/") + 1).replace(/s$/, "");
  const partly = (items as { name?: string; needs_newer_manager?: string }[])
    .filter((item) => item.needs_newer_manager)
    .map((item) => ({ kind, name: item.name ?? "", detail: item.needs_newer_manager ?? "" }));
  return [...unreadable, ...partly];
}

/** Records what an answer reports about its items. A list's first page replaces the records of all its pages. */
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
