import { Alert, Button, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useAction } from "@/parts/actions";
import { visible } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Problem } from "@/parts/States";
import { t } from "@/texts";
import { draftPlace, forgetDraft, keepDraft, readDraft } from "./drafts";
import { Editor, type Marked } from "./Editor";
import { type FieldError, fieldsOf } from "./errors";
import type { Form } from "./fields";
import { hiddenIn } from "./plans";
import { pathOf, same, type Values, valueAt } from "./values";

type Yaml = typeof import("./yaml");
type Mode = "form" | "yaml" | "json";

export interface SpecPageProps<P, R> {
  title: string;
  lead?: ReactNode;
  /** What the page starts with. */
  start: Values;
  /** The form. Without it, there is only the editor. */
  fields?: (form: Form) => ReactNode;
  /** Fields that are not part of the specification, such as a name in the address. */
  above?: (error: unknown) => ReactNode;
  /** Notes about what is missing, such as hidden values. */
  note?: ReactNode;
  verb: string;
  /** Keeps a draft until it is sent. The version of the object that is changed; "" if it is a new one. */
  draft?: string;
  /** A dry run of the specification and what it shows. Creates nothing. */
  plan?: { title: string; ask: (spec: Values) => Promise<P>; show: (plan: P) => ReactNode };
  /** `key`: the same for every attempt to send the same, so that it is done once (Idempotency-Key). */
  save: (spec: Values, key: string, again?: string) => Promise<R>;
  done: (made: R) => string;
  saved: (made: R) => void;
  /** How a refusal is shown; `undefined`: like others. */
  problem?: (failure: {
    error: unknown;
    mine: Values;
    again: (argument: string) => void;
    restart: (spec: Values) => void;
  }) => ReactNode;
}

/** A random key. `crypto.randomUUID` exists only on https. */
const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** A specification as a form, or as YAML or JSON, with its dry run beside it. All three hold the same. */
export function SpecPage<P, R>(props: SpecPageProps<P, R>) {
  const { fields, plan: planning } = props;
  const draft = useDraft(props.draft);
  const spec = useSpec(draft.found ?? props.start, fields ? "form" : "yaml");
  // biome-ignore lint/correctness/useExhaustiveDependencies: what the page starts with is no change by the user
  useEffect(() => draft.keep(spec.draft, props.start), [spec.draft, props.draft]);
  const box = useRef<HTMLFormElement>(null);
  const keyed = useRef({ body: "", key: "" });
  const refused = (error: unknown, sent: Values) => spec.setErrors(fieldsOf(error, sent));
  useEffect(() => {
    if (spec.errors.length > 0) {
      box.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
    }
  }, [spec.errors]);
  const plan = useMutation({
    mutationFn: (sent: Values) => planning?.ask(sent) as Promise<P>,
    onError: refused,
    onSuccess: () => spec.setErrors([]),
  });
  const save = useAction(
    ({ sent, again }: { sent: Values; again?: string }) => {
      const body = JSON.stringify(sent);
      if (keyed.current.body !== body) {
        keyed.current = { body, key: newKey() };
      }
      return props.save(sent, keyed.current.key, again).then((made) => {
        draft.end();
        return made;
      });
    },
    (made: R) => props.done(made),
  );
  const send = (again?: string) => {
    const sent = spec.current();
    if (sent) {
      save.mutate(again === undefined ? { sent } : { sent, again }, {
        onSuccess: props.saved,
        onError: (error) => refused(error, sent),
      });
    }
  };
  const ask = () => {
    const sent = spec.current();
    if (sent) {
      save.reset();
      plan.mutate(sent);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    send();
  };
  const restart = (values: Values) => {
    spec.restart(values);
    save.reset();
  };
  const own = save.error
    ? props.problem?.({ error: save.error, mine: spec.last, again: send, restart })
    : null;
  const shown = own === undefined ? <Problem error={save.error} /> : own;
  return (
    <Page title={props.title} lead={props.lead}>
      <div className={planning ? "columns planned" : undefined}>
        <Section title={t("form.what")} actions={fields ? <Modes spec={spec} /> : null}>
          <form onSubmit={submit} ref={box} noValidate>
            <Stack gap="md">
              {props.note}
              {draft.found ? (
                <DraftNote
                  hidden={hiddenIn(draft.found).filter((one) => !hiddenIn(props.start).includes(one))}
                  discard={() => {
                    draft.discard();
                    restart(props.start);
                  }}
                />
              ) : null}
              {props.above?.(save.error)}
              {spec.mode === "form" && fields ? (
                <Stack gap="md" key={spec.round}>
                  {fields({ values: spec.values, set: spec.set, errors: spec.errors })}
                </Stack>
              ) : (
                <Editor
                  label={t("editor.label")}
                  help={t("editor.help")}
                  text={spec.text}
                  setText={spec.setText}
                  errors={spec.marked}
                />
              )}
              {shown}
              <Group justify="flex-end" gap="xs">
                {planning ? (
                  <Button variant="default" loading={plan.isPending} onClick={ask}>
                    {t("newSession.dryRun")}
                  </Button>
                ) : null}
                <Button type="submit" loading={save.isPending}>
                  {props.verb}
                </Button>
              </Group>
            </Stack>
          </form>
        </Section>
        {planning ? (
          <Section title={planning.title}>
            {plan.error ? <Problem error={plan.error} /> : null}
            {plan.data === undefined || plan.error ? null : (
              <div aria-live="polite">{planning.show(plan.data)}</div>
            )}
            {plan.error || plan.data !== undefined ? null : (
              <p className="dim">{t("newSession.whereHelp")}</p>
            )}
          </Section>
        ) : null}
      </div>
    </Page>
  );
}

/** The draft of this page: what was found, and how to keep it. `version`: see `SpecPageProps`. */
function useDraft(version: string | undefined) {
  const [place] = useState(() => (version === undefined ? "" : draftPlace()));
  const [found, setFound] = useState(() => (place ? readDraft(place, version ?? "") : null));
  const ended = useRef(false);
  const forget = () => {
    if (place) {
      forgetDraft(place);
    }
  };
  return {
    found,
    /** `values`: null while a text cannot be read. What equals the start is no draft. */
    keep: (values: Values | null, start: Values) => {
      if (!place || ended.current || !values) {
        return;
      }
      if (same(values, start)) {
        forget();
      } else {
        keepDraft(place, { values, version: version ?? "" });
      }
    },
    end: () => {
      ended.current = true;
      forget();
    },
    discard: () => {
      setFound(null);
      forget();
    },
  };
}

/** Says that what is shown was entered before. `hidden`: the values that a draft does not have. */
function DraftNote({ hidden, discard }: { hidden: string[]; discard: () => void }) {
  return (
    <Alert variant="default" role="status" title={t("form.draft")}>
      <Group justify="space-between" gap="xs">
        <Text size="sm">
          {hidden.length === 0
            ? t("form.draftText")
            : t("form.draftHidden", { fields: hidden.map((one) => visible(one)).join(", ") })}
        </Text>
        <Button size="xs" variant="default" onClick={discard}>
          {t("form.draftDiscard")}
        </Button>
      </Group>
    </Alert>
  );
}

function Modes({ spec }: { spec: ReturnType<typeof useSpec> }) {
  return (
    <SegmentedControl
      size="xs"
      aria-label={t("form.mode")}
      data={(["form", "yaml", "json"] as const).map((value) => ({ value, label: t(`form.as_${value}`) }))}
      value={spec.mode}
      onChange={(mode) => void spec.show(mode as Mode)}
    />
  );
}

/** A specification that is edited as values or as text. A text that cannot be read stays as it is. */
function useSpec(start: Values, first: Mode) {
  const [mode, setMode] = useState(first);
  const [values, setValues] = useState(start);
  const [text, setText] = useState("");
  const [yaml, setYaml] = useState<Yaml>();
  const [errors, setErrors] = useState<FieldError[]>([]);
  const [misread, setMisread] = useState<Marked[]>([]);
  const [round, setRound] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the start is written once, when the parser is there
  useEffect(() => {
    if (first !== "form") {
      void import("./yaml").then((loaded) => {
        setYaml(loaded);
        setText(loaded.write(start, "yaml"));
      });
    }
  }, []);
  /** What the text says, or null, and the errors are shown. */
  const parsed = (loaded: Yaml): Values | null => {
    const found = loaded.read(text);
    if ("value" in found) {
      setMisread([]);
      return found.value;
    }
    setMisread(
      found.misread.map((one) => ({ ...one, field: "", message: one.message || t("editor.noObject") })),
    );
    return null;
  };
  const write = (loaded: Yaml, of: Values, as: Mode) => {
    setText(loaded.write(of, as === "json" ? "json" : "yaml"));
    setMisread([]);
  };
  const draft = useMemo(() => {
    if (mode === "form") {
      return values;
    }
    const found = yaml && text ? yaml.read(text) : null;
    return found && "value" in found ? found.value : null;
  }, [mode, values, text, yaml]);
  return {
    mode,
    values,
    text,
    /** What is being edited, or null if its text cannot be read. */
    draft,
    errors,
    round,
    /** What was sent or shown last. */
    last: values,
    setErrors,
    set: setValues,
    setText: (next: string) => {
      setText(next);
      setMisread([]);
    },
    marked: mode === "form" || !yaml ? [] : [...misread, ...markedIn(yaml, text, errors)],
    current: (): Values | null => {
      if (mode === "form" || !yaml) {
        return mode === "form" ? values : null;
      }
      const found = parsed(yaml);
      if (found) {
        setValues(found);
      }
      return found;
    },
    show: async (next: Mode) => {
      const loaded = yaml ?? (await import("./yaml"));
      setYaml(loaded);
      const found = mode === "form" ? values : parsed(loaded);
      if (found) {
        setValues(found);
        setMode(next);
        if (next !== "form") {
          write(loaded, found, next);
        }
      }
    },
    restart: (next: Values) => {
      setValues(next);
      setErrors([]);
      setRound((before) => before + 1);
      if (yaml && mode !== "form") {
        write(yaml, next, mode);
      }
    },
  };
}

/** The refused fields at their lines, until their values change. */
function markedIn(yaml: Yaml, text: string, errors: FieldError[]): Marked[] {
  if (errors.length === 0) {
    return [];
  }
  const found = yaml.read(text);
  if (!("value" in found)) {
    return [];
  }
  return errors
    .filter((error) => same(valueAt(found.value, error.field), error.sent))
    .map(({ field, message }) => ({ field, message, line: yaml.lineOf(text, pathOf(found.value, field)) }));
}
