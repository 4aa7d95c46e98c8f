import { type RefObject, useLayoutEffect, useMemo, useRef, useState } from "react";

/** What the choice of columns needs to know of one. */
export interface Choosable {
  key: string;
  header: string;
  wide?: boolean | number;
}

/** Below this width each row is a card, as in styles.css. */
const CARDS = "(max-width: 40em)";

interface Dropped {
  key: string;
  /** The width of the table with this column, in pixels. */
  needed: number;
}

// The status and the buttons of a row.
const STAY = ["status", "state", "action", "undo", "change"];

/** Columns in the order in which they leave a narrow table. The first one stays, too. */
function leaving(columns: Choosable[]): string[] {
  const rank = (column: Choosable) => Number(column.wide ?? 0);
  return columns
    .map((column, place) => ({ ...column, place }))
    .filter(({ key, header, place }) => place > 0 && !STAY.includes(key) && header !== "")
    .sort((a, b) => rank(b) - rank(a) || b.place - a.place)
    .map(({ key }) => key);
}

const stored = (label: string) => `moorage.columns.${label}`;

/** The columns that this reader chose, or null: those that fit. */
function read(label: string): string[] | null {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(stored(label)) ?? "null");
    return Array.isArray(found) ? found.map(String) : null;
  } catch {
    return null; // a browser that keeps nothing
  }
}

function keep(label: string, keys: string[] | null) {
  try {
    if (keys) {
      localStorage.setItem(stored(label), JSON.stringify(keys));
    } else {
      localStorage.removeItem(stored(label));
    }
  } catch {
    // The choice holds until the page is left.
  }
}

export interface Choice<C> {
  box: RefObject<HTMLDivElement | null>;
  shown: C[];
  /** Columns that can be chosen, and whether each is shown. */
  offered: { key: string; header: string; on: boolean }[];
  /** Whether the reader chose the columns. */
  isChosen: boolean;
  /** Whether columns are left out because they do not fit. */
  isShort: boolean;
  /** Whether the table is wider than its box although all that can leave have left. */
  scrolls: boolean;
  choose: (keys: string[] | null) => void;
}

/** The columns of a table: those that the reader chose, or those that fit. `count`: the number of rows. */
export function useColumns<C extends Choosable>(label: string, columns: C[], count: number): Choice<C> {
  const box = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState(() => read(label));
  const [dropped, setDropped] = useState<Dropped[]>([]);
  const [scrolls, setScrolls] = useState(false);
  const order = useMemo(() => leaving(columns), [columns]);
  // Other rows can be narrower.
  // biome-ignore lint/correctness/useExhaustiveDependencies: the number of rows is what changes
  useLayoutEffect(() => setDropped((before) => (before.length > 0 ? [] : before)), [count, chosen]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: there is no table without rows
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return;
    }
    const fit = () => {
      const { scrollWidth, clientWidth } = element;
      const isOver = scrollWidth > clientWidth + 1;
      const last = dropped.at(-1);
      const next = order.find((key) => dropped.every((one) => one.key !== key));
      const isCards = window.matchMedia(CARDS).matches;
      setScrolls(isOver && (chosen !== null || next === undefined));
      if (chosen || isCards) {
        setDropped((before) => (before.length > 0 ? [] : before));
      } else if (isOver && next !== undefined) {
        setDropped([...dropped, { key: next, needed: scrollWidth }]);
      } else if (last && clientWidth >= last.needed) {
        setDropped(dropped.slice(0, -1));
      }
    };
    fit();
    const observer = new ResizeObserver(fit);
    observer.observe(element);
    return () => observer.disconnect();
  }, [order, dropped, chosen, count]);
  const shown = useMemo(() => {
    const may = new Set(leaving(columns));
    return columns.filter(({ key }) =>
      chosen ? !may.has(key) || chosen.includes(key) : dropped.every((one) => one.key !== key),
    );
  }, [columns, chosen, dropped]);
  return {
    box,
    shown,
    offered: columns
      .filter(({ key }) => order.includes(key))
      .map(({ key, header }) => ({ key, header, on: shown.some((one) => one.key === key) })),
    isChosen: chosen !== null,
    isShort: dropped.length > 0,
    scrolls,
    choose: (keys) => {
      keep(label, keys);
      setChosen(keys);
    },
  };
}
