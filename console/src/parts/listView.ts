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

/** Changes a value in the page's address; undefined leaves it out. */
function useAddress(name: string): [unknown, (value: string | boolean | undefined) => void] {
  const found = useSearch({ strict: false }) as Record<string, unknown>;
  const navigate = useNavigate();
  const change = useCallback(
    (value: string | boolean | undefined) =>
      void navigate({
        to: ".",
        replace: true,
        search: ((before: Record<string, unknown>) => ({ ...before, [name]: value })) as never,
      }),
    [navigate, name],
  );
  return [found[name], change];
}

/** A filter of the page's list that is in its address, with how to change it. */
export function useFilter(name: string): [string, (value: string) => void] {
  const [found, change] = useAddress(name);
  return [text(found), (value) => change(value || undefined)];
}

/** Like `useFilter`, for one that is on or off. */
export function useFlag(name: string): [boolean, (on: boolean) => void] {
  const [found, change] = useAddress(name);
  return [found === true, (on) => change(on || undefined)];
}

/** Like `useFilter`, for one of these values. */
export function useChoice<T extends string>(
  name: string,
  values: readonly T[],
  usual: T,
): [T, (value: T) => void] {
  const [found, change] = useFilter(name);
  return [values.find((value) => value === found) ?? usual, (value) => change(value === usual ? "" : value)];
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
