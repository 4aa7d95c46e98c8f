/** A specification as a form or the editor holds it: exactly what is sent, unknown fields included. */
export type Values = Record<string, unknown>;
export type Path = readonly (string | number)[];

const isObject = (value: unknown): value is Values =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function getIn(values: unknown, path: Path): unknown {
  let found = values;
  for (const part of path) {
    if (typeof found !== "object" || found === null) {
      return undefined;
    }
    found = (found as Values)[part];
  }
  return found;
}

/** `values` with one field set. `undefined` removes the field, and objects that it leaves empty. */
export function setIn(values: Values, [first, ...rest]: Path, value: unknown): Values {
  if (first === undefined) {
    return values;
  }
  const inner = values[first];
  const next = rest.length === 0 ? value : setIn(isObject(inner) ? inner : {}, rest, value);
  const kept = { ...values };
  if (
    next === undefined ||
    (rest.length > 0 && value === undefined && Object.keys(next as Values).length === 0)
  ) {
    delete kept[first];
  } else {
    kept[first] = next;
  }
  return kept;
}

export const same = (a: unknown, b: unknown) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

/** The path of a field as the manager writes it: `ports[0].name`. */
export const pathText = (path: Path) =>
  path
    .map((part) => (typeof part === "number" ? `[${part}]` : `.${part}`))
    .join("")
    .replace(/^\./, "");

/** The path of `ports[0].name` in `values`. The names of slots and labels can contain dots. */
export function pathOf(values: unknown, field: string): Path {
  const parts = [...field.matchAll(/\[(\d+)\]|([^.[\]]+)/g)].map(([, index, name]) =>
    index === undefined ? (name ?? "") : Number(index),
  );
  const path: (string | number)[] = [];
  let inside = values;
  while (parts.length > 0) {
    let taken = parts.length;
    while (taken > 1 && !(isObject(inside) && parts.slice(0, taken).join(".") in inside)) {
      taken -= 1;
    }
    const part = taken === 1 ? (parts[0] ?? "") : parts.slice(0, taken).join(".");
    parts.splice(0, taken);
    path.push(part);
    inside = getIn(inside, [part]);
  }
  return path;
}

/** The value of a field that the manager named. */
export const valueAt = (values: unknown, field: string) => getIn(values, pathOf(values, field));

// The defaults of the REST models. `tests/tidy/test_console_specs.py` compares them.
export const DEFAULTS: Values = {
  engine: "custom",
  runtime: "process",
  resource_group: "default",
  priority: 10,
  start_timeout_s: 900,
  stop_grace_s: 10,
  max_attempts: 3,
  type: "batch",
  retries: 0,
  retry_backoff_s: 5,
  dependency_failed: "end",
};

const isEmpty = (value: unknown) =>
  value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0);

/** Without fields that are null, empty or the default: what a person would have written. */
export function brief(spec: object, defaults: Values = DEFAULTS): Values {
  const kept: Values = {};
  for (const [name, value] of Object.entries(spec)) {
    const inner = Array.isArray(value)
      ? value.map((one) => (isObject(one) ? brief(one, {}) : one))
      : isObject(value)
        ? brief(value, {})
        : value;
    if (!isEmpty(inner) && !(name in defaults && same(inner, defaults[name]))) {
      kept[name] = inner;
    }
  }
  return kept;
}

/** The JSON merge patch (RFC 7396) that makes `mine` of `base`. */
export function mergePatch(base: Values, mine: Values): Values {
  const patch: Values = {};
  for (const name of new Set([...Object.keys(base), ...Object.keys(mine)])) {
    const before = base[name];
    const after = mine[name];
    if (same(before, after)) {
      continue;
    }
    patch[name] = isObject(before) && isObject(after) ? mergePatch(before, after) : (after ?? null);
  }
  return patch;
}
