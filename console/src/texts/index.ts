import en from "./en.json";
import { number } from "./locale";

/** A status that has a text and therefore a tone. The types of the REST models' statuses are subsets of it. */
export type StatusName = keyof (typeof en)["status"];

/** The keys of all texts; "agents.count_one" and "agents.count_other" are one key, "agents.count". */
type KeyOf<T> = {
  [K in keyof T & string]: T[K] extends string
    ? K extends `${infer Plain}_one` | `${infer Plain}_other`
      ? Plain
      : K
    : `${K}.${KeyOf<T[K]>}`;
}[keyof T & string];
export type TextKey = KeyOf<typeof en>;

const texts = new Map<string, string>();

function collect(part: object, prefix: string) {
  for (const [name, value] of Object.entries(part)) {
    if (typeof value === "string") {
      texts.set(prefix + name, value);
    } else {
      collect(value as object, `${prefix}${name}.`);
    }
  }
}

collect(en, "");

// Numbers in texts are written as everywhere else.
const shown = (value: unknown) => (typeof value === "number" ? number(value, 3) : String(value ?? ""));

const plurals = new Intl.PluralRules("en");

/**
 * The text of a key with its values. A number named `count` also chooses between a singular and a plural. A key without
 * a text, such as that of a status of a newer manager, is shown as its last part.
 */
export function t(key: TextKey, values: Record<string, unknown> = {}): string {
  const { count } = values;
  const plural = typeof count === "number" ? texts.get(`${key}_${plurals.select(count)}`) : undefined;
  const text = plural ?? texts.get(key) ?? key.slice(key.lastIndexOf(".") + 1);
  return text.replace(/\{\{(\w+)\}\}/g, (_, name: string) => shown(values[name]));
}
