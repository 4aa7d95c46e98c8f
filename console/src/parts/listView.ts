import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";

/** What a list is searched for, and the column that it is sorted by, with a leading - for descending order. */
export interface ListView {
  search: string;
  sort: string;
  change: (next: { search?: string; sort?: string }) => void;
}

const text = (value: unknown) =>
  typeof value === "string" || typeof value === "number" ? String(value) : "";

/** The view of a page's list. It is in the address, so that a reload, a link and the Back button keep it. */
export function useListView(): ListView {
  const found = useSearch({ strict: false }) as { search?: unknown; sort?: unknown };
  const navigate = useNavigate();
  const search = text(found.search);
  const sort = text(found.sort);
  const change = useCallback(
    (next: { search?: string; sort?: string }) =>
      void navigate({
        to: ".",
        replace: true,
        search: ((before: Record<string, unknown>) => {
          const after = { ...before, ...next };
          return Object.fromEntries(Object.entries(after).filter(([, value]) => value !== ""));
        }) as never,
      }),
    [navigate],
  );
  return useMemo(() => ({ search, sort, change }), [search, sort, change]);
}

/** What the manager is asked for, if it searches and sorts a list. An order that it does not have is left out. */
export function pageFilter(
  view: ListView,
  columns: { key: string; order?: string }[],
): { search?: string; sort?: string } {
  const column = columns.find(({ key }) => key === view.sort.replace(/^-/, ""));
  const sign = view.sort.startsWith("-") ? "-" : "";
  return {
    ...(view.search ? { search: view.search } : {}),
    ...(column?.order ? { sort: `${sign}${column.order}` } : {}),
  };
}
