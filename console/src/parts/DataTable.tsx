import { Button, Checkbox, Text, TextInput } from "@mantine/core";
import { memo, type ReactNode, Suspense, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { t } from "@/texts";
import { type BulkAction, BulkBar } from "./Bulk";
import { type Choice, type Choosable, useColumns } from "./columns";
import { lazy } from "./lazy";
import type { ListView } from "./listView";
import { Empty } from "./States";

// Its list is not a part of the first page.
const ColumnChooser = lazy(() => import("./ColumnChooser"));

const Columns = ({ choice }: { choice: Choice<Choosable> }) => (
  <Suspense>
    <ColumnChooser choice={choice} />
  </Suspense>
);

type Sortable = string | number | null | undefined;

export interface Column<T> {
  key: string;
  header: string;
  cell: (row: T) => ReactNode;
  right?: boolean;
  /** Left out before others if there is little room; the largest number first. Cards have none with 1 or more. */
  wide?: boolean | number;
  /** The value by which rows are sorted. Without it, and without `order`, the column cannot be sorted. */
  sort?: (row: T) => Sortable;
  /** The field by which the manager sorts a list that is loaded page by page. */
  order?: string;
  /** A text that may be long: one line, whose whole text is its title. */
  line?: (row: T) => string;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  empty?: ReactNode;
  more?: { load: () => void; loading: boolean } | undefined;
  /** Makes the list searchable and sortable. */
  view?: ListView;
  /** Each row has one line, as in every table with a `view`; a text that is too long is cut and has a title. */
  oneLine?: boolean;
  /** The text of a row that is searched. Without it, the manager searches. */
  searched?: (row: T) => string;
  /** Whether the manager searches and sorts, because only some of the rows are loaded. */
  remote?: boolean;
  /** Further filters, beside the search. */
  filters?: ReactNode;
  bulk?: BulkAction<T>[] | undefined;
  nameOf?: (row: T) => string;
}

const SHOWN = 40;

function compare(a: Sortable, b: Sortable): number {
  const [none, other] = [a ?? "", b ?? ""];
  if (typeof none === "number" && typeof other === "number") {
    return none - other;
  }
  return String(none).localeCompare(String(other), "en", { numeric: true, sensitivity: "base" });
}

/** The rows that match the search, in the order of the view. */
function arranged<T>({ rows, columns, view, searched, remote }: Props<T>): T[] {
  if (!view || remote) {
    return rows;
  }
  const wanted = view.search.trim().toLowerCase();
  const found =
    wanted && searched ? rows.filter((row) => searched(row).toLowerCase().includes(wanted)) : rows;
  const descending = view.sort.startsWith("-");
  const value = columns.find((column) => column.key === view.sort.replace(/^-/, ""))?.sort;
  if (!value) {
    return found;
  }
  return [...found].sort((a, b) => compare(value(a), value(b)) * (descending ? -1 : 1));
}

/** Gives each cell whose text is cut a title with the whole text. */
function nameCutCells(box: HTMLElement | null) {
  const cells = [...(box?.querySelectorAll<HTMLElement>(".one-line td:not(.line):not(:has(button))") ?? [])];
  const cut = cells.map((cell) => cell.scrollWidth > cell.clientWidth + 1);
  cells.forEach((cell, index) => {
    cell.title = cut[index] ? (cell.textContent ?? "") : "";
  });
}

/** A table; on a narrow screen each row becomes a card whose fields have the headers as labels. */
export function DataTable<T>(props: Props<T>) {
  const { label, columns, rows, id, empty, more, view, searched, remote, filters, bulk } = props;
  const [limit, setLimit] = useState(SHOWN);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  // biome-ignore lint/correctness/useExhaustiveDependencies: these are all that the order depends on
  const shown = useMemo(() => arranged(props), [rows, columns, view, searched, remote]);
  const visibleRows = shown.slice(0, limit);
  const selected = shown.filter((row) => chosen.has(id(row)));
  const searchable = view !== undefined && (searched !== undefined || remote === true);
  const choice = useColumns(label, columns, visibleRows.length);
  useLayoutEffect(() => nameCutCells(choice.box.current));
  // Some cells ask for their text.
  useEffect(() => {
    const observer = new MutationObserver(() => nameCutCells(choice.box.current));
    if (choice.box.current) {
      observer.observe(choice.box.current, { childList: true, characterData: true, subtree: true });
    }
    return () => observer.disconnect();
  });
  const choose = (keys: string[], on: boolean) =>
    setChosen((before) => {
      const others = [...before].filter((key) => !keys.includes(key));
      return new Set(on ? [...others, ...keys] : others);
    });
  const search = searchable && (rows.length > 0 || view.search) ? <SearchBox view={view} /> : null;
  const head =
    search || filters ? (
      <div className="filters">
        {search}
        {filters}
        {rows.length > 0 ? <Columns choice={choice} /> : null}
      </div>
    ) : null;
  if (shown.length === 0 && (empty || view?.search)) {
    return (
      <>
        {head}
        {view?.search ? <Empty title={t("table.nothing", { text: view.search })} /> : empty}
      </>
    );
  }
  const all = visibleRows.length > 0 && visibleRows.every((row) => chosen.has(id(row)));
  return (
    <>
      {head}
      {bulk && selected.length > 0 ? (
        <BulkBar
          selected={selected}
          actions={bulk}
          nameOf={props.nameOf ?? id}
          clear={() => setChosen(new Set())}
        />
      ) : null}
      {/* A box that scrolls has the focus, so that the arrow keys move it. */}
      <div
        ref={choice.box}
        className="table-box"
        {...(choice.scrolls ? { tabIndex: 0, role: "group", "aria-label": label } : {})}
      >
        <table className={view || props.oneLine ? "data one-line" : "data"} aria-label={label}>
          <thead>
            <tr>
              {bulk ? (
                <th className="choice">
                  <Checkbox
                    size="xs"
                    aria-label={t("bulk.all")}
                    checked={all}
                    indeterminate={!all && selected.length > 0}
                    onChange={() => choose(visibleRows.map(id), !all)}
                  />
                </th>
              ) : null}
              {choice.shown.map((column) => (
                <Header key={column.key} column={column as Column<never>} view={view} remote={remote} />
              ))}
            </tr>
          </thead>
          <tbody>
            {visibleRows.map((row) => (
              <Row
                key={id(row)}
                row={row}
                columns={choice.shown as Column<unknown>[]}
                kept={choice.isChosen}
                choice={bulk ? (props.nameOf ?? id)(row) : undefined}
                chosen={chosen.has(id(row))}
                choose={(on) => choose([id(row)], on)}
              />
            ))}
          </tbody>
        </table>
      </div>
      <div className="table-foot">
        <Text size="xs" className="dim">
          {shown.length > limit
            ? t("table.some", { shown: limit, count: shown.length })
            : t("table.all", { count: shown.length })}
          {more ? t("table.andMore") : ""}
        </Text>
        {shown.length > limit ? (
          <Button size="xs" variant="default" onClick={() => setLimit(limit + 5 * SHOWN)}>
            {t("table.show")}
          </Button>
        ) : more ? (
          <Button size="xs" variant="default" loading={more.loading} onClick={more.load}>
            {t("table.load")}
          </Button>
        ) : null}
        {head === null && (choice.isShort || choice.isChosen) ? <Columns choice={choice} /> : null}
      </div>
    </>
  );
}

const SETTLED_MS = 250;

function SearchBox({ view }: { view: ListView }) {
  const { search, change } = view;
  return (
    <FilterBox label={t("table.search")} value={search} change={(text) => change({ search: text })} search />
  );
}

/** A filter that is typed: the address, and so the list, follows when typing pauses. */
export function FilterBox({
  label,
  value,
  change,
  search,
}: {
  label: string;
  value: string;
  change: (value: string) => void;
  search?: boolean;
}) {
  const [typed, setTyped] = useState(value);
  const last = useRef(change);
  last.current = change;
  // biome-ignore lint/correctness/useExhaustiveDependencies: only a change from elsewhere replaces what is typed
  useEffect(() => {
    if (typed.trim() !== value) {
      setTyped(value);
    }
  }, [value]);
  useEffect(() => {
    if (typed.trim() === value) {
      return;
    }
    const timer = window.setTimeout(() => last.current(typed.trim()), SETTLED_MS);
    return () => window.clearTimeout(timer);
  }, [typed, value]);
  return (
    <TextInput
      size="xs"
      type={search ? "search" : "text"}
      label={label}
      maxLength={100}
      value={typed}
      onChange={(event) => setTyped(event.currentTarget.value)}
    />
  );
}

function Header({
  column,
  view,
  remote,
}: {
  column: Column<never>;
  view: ListView | undefined;
  remote: boolean | undefined;
}) {
  const sortable = view !== undefined && (remote ? column.order !== undefined : column.sort !== undefined);
  if (!sortable) {
    return (
      <th scope="col" className={classOf(column)}>
        {column.header}
      </th>
    );
  }
  const now = view.sort === column.key ? "ascending" : view.sort === `-${column.key}` ? "descending" : "none";
  // First ascending, then descending, then the list's own order.
  const next = { none: column.key, ascending: `-${column.key}`, descending: "" }[now];
  return (
    <th scope="col" className={classOf(column)} aria-sort={now}>
      <button type="button" className="sorter" onClick={() => view.change({ sort: next })}>
        {column.header}
        <span aria-hidden="true">{{ none: "", ascending: " ↑", descending: " ↓" }[now]}</span>
      </button>
    </th>
  );
}

/** `kept`: shown even if there is little room, because the reader chose the columns. */
const classOf = (column: Column<never>, kept = false) =>
  [
    column.right ? "right" : "",
    Number(column.wide ?? 0) >= 1 && !kept ? "wide-only" : "",
    column.line ? "line" : "",
  ]
    .join(" ")
    .trim() || undefined;

interface RowProps {
  row: unknown;
  columns: Column<unknown>[];
  kept: boolean;
  /** The name of the row in its checkbox; without one, it has none. */
  choice: string | undefined;
  chosen: boolean;
  choose: (on: boolean) => void;
}

// `choose` is left out: it changes at each drawing, and does the same.
const Row = memo(
  function Row({ row, columns, kept, choice, chosen, choose }: RowProps) {
    return (
      <tr data-chosen={chosen || undefined}>
        {choice === undefined ? null : (
          <td className="choice" data-label={t("bulk.one")}>
            <Checkbox
              size="xs"
              aria-label={t("bulk.choose", { name: choice })}
              checked={chosen}
              onChange={(event) => choose(event.currentTarget.checked)}
            />
          </td>
        )}
        {columns.map((column, place) => (
          <td
            key={column.key}
            className={
              [place === 0 ? "name" : "", classOf(column as Column<never>, kept)].join(" ").trim() ||
              undefined
            }
            data-label={column.header}
            title={column.line?.(row) || undefined}
          >
            {column.line ? <span className="line-text">{column.cell(row)}</span> : column.cell(row)}
          </td>
        ))}
      </tr>
    );
  },
  (before, after) =>
    before.row === after.row &&
    before.columns === after.columns &&
    before.kept === after.kept &&
    before.chosen === after.chosen &&
    before.choice === after.choice,
);
