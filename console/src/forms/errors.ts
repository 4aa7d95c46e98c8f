import { ApiProblem } from "@/api/client";
import { pathText, same, type Values, valueAt } from "./values";

export interface FieldError {
  field: string;
  message: string;
  /** What was sent. The error is shown until this changes. */
  sent: unknown;
}

/**
 * The fields that a refusal is about. The manager lists them; where a rule joins several fields, or the caller's rights
 * decide, the text names the field: as `command`, or first, as in "priority = 50 is …".
 */
export function fieldsOf(error: unknown, body: Values): FieldError[] {
  if (!(error instanceof ApiProblem) || error.status >= 500) {
    return [];
  }
  const listed = error.fields.length > 0 ? error.fields : [{ field: "body", message: error.message }];
  return listed.map(({ field, message }) => {
    const named = partOf(body, inTemplate(body, field === "body" ? namedIn(message) : field), message);
    return { field: named, message, sent: valueAt(body, named) };
  });
}

/** A request to start a template has the fields of the session in `overrides`. */
const inTemplate = (body: Values, field: string) =>
  "version" in body && field !== "" && !/^(?:parameters|overrides|version)\b/.test(field)
    ? `overrides.${field}`
    : field;

/** The value in an object, such as a slot or a label, that a message quotes by its name or its text. */
function partOf(body: Values, field: string, message: string): string {
  const value = valueAt(body, field);
  if (field === "" || typeof value !== "object" || value === null || Array.isArray(value)) {
    return field;
  }
  const quoted = Object.entries(value).find(
    ([name, inner]) => message.includes(`'${name}'`) || message.includes(`'${String(inner)}'`),
  );
  return quoted ? `${field}.${quoted[0]}` : field;
}

const NAME = /^([a-z_]+(?:[.[][\w.[\]]+)?)(?: = |: | is )/;

function namedIn(message: string): string {
  return /`([a-z_][\w.]*)`/.exec(message)?.[1] ?? NAME.exec(message)?.[1] ?? "";
}

/** The error of a field, unless its value has changed since it was sent. `within`: or of a part of it. */
export function errorAt(
  errors: FieldError[],
  values: Values,
  field: string,
  within = false,
): string | undefined {
  const found = errors.filter(
    (error) =>
      (error.field === field ||
        (within && (error.field.startsWith(`${field}.`) || error.field.startsWith(`${field}[`)))) &&
      same(valueAt(values, error.field), error.sent),
  );
  return found.length > 0 ? found.map((error) => error.message).join("; ") : undefined;
}

export { pathText };
