/**
 * The reader's locales. They decide how numbers and dates are written; the words are those of the texts.
 */
export const LOCALES: readonly string[] = [...navigator.languages];

// Building a format takes longer than using it.
const formats = new Map<number, Intl.NumberFormat>();

/** A number with the separators of the reader's locale and at most `digits` decimals. */
export function number(value: number, digits = 1): string {
  let format = formats.get(digits);
  if (!format) {
    format = new Intl.NumberFormat([...LOCALES], { maximumFractionDigits: digits });
    formats.set(digits, format);
  }
  return format.format(value);
}

/** What stands before the decimals, for fields that take numbers. */
export const DECIMAL =
  new Intl.NumberFormat([...LOCALES]).formatToParts(0.5).find(({ type }) => type === "decimal")?.value ?? ".";
