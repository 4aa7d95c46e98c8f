import { isNode, LineCounter, type Node, parseDocument, stringify } from "yaml";
import type { Path, Values } from "./values";

// Loaded with the editor only, because the parser is larger than most pages.

export interface Misread {
  line: number;
  message: string;
}

/** What a text says, or where it cannot be read. JSON is YAML, too. */
export function read(text: string): { value: Values } | { misread: Misread[] } {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, merge: true });
  if (document.errors.length > 0) {
    return {
      misread: document.errors.map((error) => ({
        line: lines.linePos(error.pos[0]).line,
        message: error.message,
      })),
    };
  }
  try {
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return { value: value as Values };
    }
  } catch (error) {
    return { misread: [{ line: 1, message: String((error as Error).message) }] };
  }
  return { misread: [{ line: 1, message: "" }] };
}

export const write = (value: Values, format: "yaml" | "json") =>
  format === "json"
    ? `${JSON.stringify(value, null, 2)}\n`
    : Object.keys(value).length === 0
      ? ""
      : stringify(value, { lineWidth: 100 });

/** The line of a field, or of the innermost object around it that the text has. */
export function lineOf(text: string, path: Path): number {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  for (let depth = path.length; depth > 0; depth -= 1) {
    const start = startOf(document.getIn(path.slice(0, depth), true));
    if (start !== undefined) {
      return lines.linePos(start).line;
    }
  }
  return 1;
}

const startOf = (node: unknown) => (isNode(node) ? (node as Node).range?.[0] : undefined);
