import {
  Autocomplete,
  Button,
  Checkbox,
  Fieldset,
  Group,
  NativeSelect,
  NumberInput,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
  Textarea,
  TextInput,
} from "@mantine/core";
import { type ReactNode, useId, useState } from "react";
import { t } from "@/texts";
import { errorAt, type FieldError } from "./errors";
import { getIn, type Path, pathText, same, setIn, type Values } from "./values";

/** What the fields of a form share. */
export interface Form {
  values: Values;
  set: (values: Values) => void;
  errors: FieldError[];
  /** Where the fields are in `values`. */
  at?: Path;
  /** What applies where `values` says nothing: fields of a template. Shown in empty fields. */
  base?: Values;
}

interface FieldProps {
  form: Form;
  path: string | Path;
  label: string;
  help?: string;
  required?: boolean;
}

/** A field's value and error, and what sets it. */
function useField({ form, path: given }: Pick<FieldProps, "form" | "path">) {
  const inner = typeof given === "string" ? given.split(".") : given;
  const path = [...(form.at ?? []), ...inner];
  const field = pathText(path);
  const fallback = getIn(form.base ?? {}, inner);
  return {
    value: getIn(form.values, path),
    error: errorAt(form.errors, form.values, field, true),
    errorOf: (below: Path) => errorAt(form.errors, form.values, pathText([...path, ...below]), true),
    own: errorAt(form.errors, form.values, field),
    placeholder: fallback === undefined || fallback === null ? undefined : shown(fallback),
    set: (value: unknown) => form.set(setIn(form.values, path, value)),
  };
}

const shown = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
const textOf = (value: unknown) => (value === undefined || value === null ? "" : shown(value));
const orNothing = (text: string) => (text === "" ? undefined : text);

export function TextField({ label, help, required, ...at }: FieldProps) {
  const field = useField(at);
  return (
    <TextInput
      label={label}
      description={help}
      required={required}
      placeholder={field.placeholder}
      value={textOf(field.value)}
      error={field.error}
      onChange={(event) => field.set(orNothing(event.currentTarget.value))}
    />
  );
}

export function NumberField({
  label,
  help,
  required,
  digits = 0,
  min = 0,
  max,
  step,
  ...at
}: FieldProps & { digits?: number; min?: number; max?: number; step?: number }) {
  const field = useField(at);
  return (
    <NumberInput
      label={label}
      description={help}
      required={required}
      min={min}
      max={max}
      step={step}
      clampBehavior="none"
      decimalScale={digits}
      placeholder={field.placeholder}
      value={typeof field.value === "number" || typeof field.value === "string" ? field.value : ""}
      error={field.error}
      onChange={(value) => field.set(value === "" ? undefined : value)}
    />
  );
}

/** Empty means the manager's default, which `none` describes. */
export function ChoiceField({
  label,
  help,
  choices,
  none,
  ...at
}: FieldProps & { choices: readonly string[]; none?: string }) {
  const field = useField(at);
  const value = textOf(field.value);
  const known = value === "" || choices.includes(value) ? choices : [...choices, value];
  return (
    <NativeSelect
      label={label}
      description={help}
      value={value}
      error={field.error}
      data={[
        ...(none !== undefined ? [{ value: "", label: field.placeholder ?? none }] : []),
        ...known.map((one) => ({ value: one, label: one })),
      ]}
      onChange={(event) => field.set(orNothing(event.currentTarget.value))}
    />
  );
}

export function CheckField({ label, help, ...at }: FieldProps) {
  const field = useField(at);
  return (
    <Checkbox
      label={label}
      description={help}
      checked={field.value === true}
      error={field.error}
      onChange={(event) => field.set(event.currentTarget.checked ? true : undefined)}
    />
  );
}

const UNITS = { s: 1, m: 60, h: 3600, d: 86_400 } as const;

/** "1h30m" in seconds. Other texts stay as they are, and the manager refuses them. */
export function secondsOf(text: string): number | string | undefined {
  const trimmed = text.trim();
  if (trimmed === "") {
    return undefined;
  }
  if (!/^(?:\d+(?:\.\d+)?[smhd])+$/.test(trimmed)) {
    return /^\d+(?:\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
  }
  return [...trimmed.matchAll(/(\d+(?:\.\d+)?)([smhd])/g)].reduce(
    (sum, [, amount, unit]) => sum + Number(amount) * UNITS[unit as keyof typeof UNITS],
    0,
  );
}

/** Seconds as a person would write them: "1h30m". */
export function spanText(value: unknown): string {
  if (typeof value !== "number") {
    return textOf(value);
  }
  let left = value;
  let text = "";
  for (const unit of ["d", "h", "m"] as const) {
    const whole = Math.floor(left / UNITS[unit]);
    if (whole > 0) {
      text += `${whole}${unit}`;
      left -= whole * UNITS[unit];
    }
  }
  return left > 0 || text === "" ? `${text}${left}s` : text;
}

/** A duration, such as 90s or 1h30m. */
export function SpanField({ label, help, ...at }: FieldProps) {
  const field = useField(at);
  const [text, setText] = useState(() => spanText(field.value));
  const written = same(secondsOf(text), field.value) ? text : spanText(field.value);
  return (
    <TextInput
      label={label}
      description={help}
      placeholder={field.placeholder ?? t("form.span")}
      value={written}
      error={field.error}
      onChange={(event) => {
        setText(event.currentTarget.value);
        field.set(secondsOf(event.currentTarget.value));
      }}
    />
  );
}

/** A list of words, each entered with Enter. */
export function WordsField({
  label,
  help,
  suggestions,
  ...at
}: FieldProps & { suggestions?: readonly string[] }) {
  const field = useField(at);
  return (
    <TagsInput
      label={label}
      description={help}
      placeholder={field.placeholder}
      data={[...(suggestions ?? [])]}
      acceptValueOnBlur
      value={Array.isArray(field.value) ? field.value.map(String) : []}
      error={field.error}
      onChange={(value) => field.set(value.length > 0 ? value : undefined)}
    />
  );
}

const SHELL = ["/bin/sh", "-c"];

/** A program: a line for the shell, or its arguments, one per line. The shell is for a new program. */
export function CommandField({ label, help, ...at }: FieldProps) {
  const field = useField(at);
  const words = Array.isArray(field.value) ? field.value.map(String) : [];
  const line =
    words.length === 0
      ? ""
      : words.length === 3 && same(words.slice(0, 2), SHELL)
        ? (words[2] ?? "")
        : undefined;
  if (line === undefined) {
    return (
      <Textarea
        label={t("form.arguments")}
        description={t("form.argumentsHelp")}
        autosize
        minRows={2}
        value={words.join("\n")}
        readOnly={words.some((word) => word.includes("\n"))}
        error={field.error}
        onChange={(event) => field.set(event.currentTarget.value.split("\n"))}
      />
    );
  }
  return (
    <Textarea
      label={label}
      description={help}
      autosize
      minRows={2}
      placeholder={field.placeholder}
      value={line}
      error={field.error}
      onChange={(event) => {
        const text = event.currentTarget.value;
        field.set(text === "" ? undefined : [...SHELL, text]);
      }}
    />
  );
}

interface Cell {
  key: string;
  label: string;
  kind?: "number" | "check";
  choices?: readonly string[];
  suggestions?: readonly string[];
}

/** A list of small objects, one row each. An object without any value is left out of what is sent. */
export function RowsField({ label, help, add, cells, ...at }: FieldProps & { add: string; cells: Cell[] }) {
  const field = useField(at);
  const rows = Array.isArray(field.value) ? (field.value as Values[]) : [];
  const put = (next: Values[]) => field.set(next.length > 0 ? next : undefined);
  return (
    <Rows
      label={label}
      help={help}
      add={add}
      error={field.own}
      count={rows.length}
      added={() => put([...rows, {}])}
      removed={(index) => put(rows.filter((_, other) => other !== index))}
      row={(index) =>
        cells.map((cell) => (
          <CellInput
            key={cell.key}
            cell={cell}
            value={rows[index]?.[cell.key]}
            error={
              field.errorOf([index, cell.key]) ??
              (cell === cells[0] ? rowError(field.errorOf, index, cells) : undefined)
            }
            set={(value) =>
              put(rows.map((row, other) => (other === index ? setIn(row, [cell.key], value) : row)))
            }
          />
        ))
      }
    />
  );
}

/** The error of a row that is not that of one of its cells. */
function rowError(errorOf: (below: Path) => string | undefined, index: number, cells: Cell[]) {
  return cells.some((cell) => errorOf([index, cell.key])) ? undefined : errorOf([index]);
}

function CellInput({
  cell,
  value,
  error,
  set,
}: {
  cell: Cell;
  value: unknown;
  error: string | undefined;
  set: (value: unknown) => void;
}) {
  if (cell.kind === "check") {
    return (
      <Checkbox
        label={cell.label}
        checked={value === true}
        error={error}
        mt={28}
        onChange={(event) => set(event.currentTarget.checked ? true : undefined)}
      />
    );
  }
  if (cell.kind === "number") {
    return (
      <NumberInput
        label={cell.label}
        value={typeof value === "number" ? value : ""}
        error={error}
        hideControls
        onChange={(next) => set(next === "" ? undefined : next)}
      />
    );
  }
  if (cell.choices) {
    return (
      <NativeSelect
        label={cell.label}
        data={[...cell.choices]}
        value={textOf(value) || cell.choices[0]}
        error={error}
        onChange={(event) =>
          set(event.currentTarget.value === cell.choices?.[0] ? undefined : event.currentTarget.value)
        }
      />
    );
  }
  return (
    <Autocomplete
      label={cell.label}
      data={[...(cell.suggestions ?? [])]}
      value={textOf(value)}
      error={error}
      onChange={(next) => set(orNothing(next))}
    />
  );
}

/** Names and values, such as variables or labels. */
export function PairsField({
  label,
  help,
  add,
  name = t("field.name"),
  value = t("form.value"),
  suggestions,
  ...at
}: FieldProps & { add: string; name?: string; value?: string; suggestions?: readonly string[] }) {
  const field = useField(at);
  const given = (field.value ?? {}) as Values;
  const [rows, setRows] = useState<[string, string][]>(() =>
    Object.entries(given).map(([key, text]) => [key, textOf(text)]),
  );
  const put = (next: [string, string][]) => {
    setRows(next);
    const named = next.filter(([key]) => key.trim() !== "");
    field.set(
      named.length > 0 ? Object.fromEntries(named.map(([key, text]) => [key.trim(), text])) : undefined,
    );
  };
  const twice = (key: string) =>
    key.trim() !== "" && rows.filter(([other]) => other.trim() === key.trim()).length > 1;
  return (
    <Rows
      label={label}
      help={help}
      add={add}
      error={field.own}
      count={rows.length}
      added={() => setRows([...rows, ["", ""]])}
      removed={(index) => put(rows.filter((_, other) => other !== index))}
      row={(index) => {
        const [key, text] = rows[index] ?? ["", ""];
        const change = (pair: [string, string]) =>
          put(rows.map((row, other) => (other === index ? pair : row)));
        return [
          <TextInput
            key="name"
            label={name}
            value={key}
            error={twice(key) ? t("form.twice") : undefined}
            onChange={(event) => change([event.currentTarget.value, text])}
          />,
          <Autocomplete
            key="value"
            label={value}
            data={[...(suggestions ?? [])]}
            value={text}
            error={key === "" ? undefined : field.errorOf([key])}
            onChange={(next) => change([key, next])}
          />,
        ];
      }}
    />
  );
}

function Rows({
  label,
  help,
  add,
  error,
  count,
  added,
  removed,
  row,
}: {
  label: string;
  help: string | undefined;
  add: string;
  error: string | undefined;
  count: number;
  added: () => void;
  removed: (index: number) => void;
  row: (index: number) => ReactNode[];
}) {
  const id = useId();
  return (
    <Fieldset legend={label} className="rows" aria-describedby={id}>
      <Stack gap="xs">
        <Text size="xs" className={error ? "danger" : "dim"} id={id}>
          {error ?? help ?? ""}
        </Text>
        {Array.from({ length: count }, (_, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a row is its place
          <div className="row" key={index}>
            {row(index)}
            <Button
              size="xs"
              variant="subtle"
              className="row-remove"
              aria-label={t("form.removeRow", { label, number: index + 1 })}
              onClick={() => removed(index)}
            >
              {t("form.remove")}
            </Button>
          </div>
        ))}
        <Group>
          <Button size="xs" variant="default" onClick={added}>
            {add}
          </Button>
        </Group>
      </Stack>
    </Fieldset>
  );
}

/** A part of a form that is open if it has values or errors, or when the user opens it. */
export function Part({
  form,
  title,
  names,
  children,
}: {
  form: Form;
  title: string;
  /** The fields in it. */
  names: readonly string[];
  children: ReactNode;
}) {
  const at = form.at ?? [];
  const inner = getIn(form.values, at) ?? {};
  const [opened, setOpened] = useState(() => names.some((name) => getIn(inner, [name]) !== undefined));
  const wrong = names.some((name) => errorAt(form.errors, form.values, pathText([...at, name]), true));
  return (
    <details
      className="form-part"
      open={opened || wrong}
      onToggle={(event) => setOpened(event.currentTarget.open)}
    >
      <summary>{title}</summary>
      <Stack gap="md">{children}</Stack>
    </details>
  );
}

export function Two({ children }: { children: ReactNode }) {
  return <SimpleGrid cols={{ base: 1, sm: 2 }}>{children}</SimpleGrid>;
}
