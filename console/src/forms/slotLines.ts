/** Parses lines like "cuda.device=4" into slots. */
export function slotsOf(lines: string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const [slot = "", value = ""] = line.split("=", 2);
      return [slot.trim(), value.trim()];
    }),
  );
}

/** The lines that `slotsOf` parses into these slots. */
export const linesOf = (slots: Record<string, string | number> | undefined) =>
  Object.entries(slots ?? {}).map(([slot, value]) => `${slot}=${value}`);
