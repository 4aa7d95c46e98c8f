import { Button, FileButton, Group, Text } from "@mantine/core";
import { type KeyboardEvent, useId, useRef } from "react";
import { visible } from "@/parts/format";
import { t } from "@/texts";

export interface Marked {
  line: number;
  /** The field that the manager named, or "". */
  field: string;
  message: string;
}

/** A text with line numbers. Lines with errors are marked, and listed below with a button that goes there. */
export function Editor({
  label,
  help,
  text,
  setText,
  errors,
}: {
  label: string;
  help: string;
  text: string;
  setText: (text: string) => void;
  errors: Marked[];
}) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const count = text.split("\n").length;
  const wrong = new Set(errors.map((error) => error.line));
  const goTo = (line: number) => {
    const starts =
      text
        .split("\n")
        .slice(0, line - 1)
        .join("\n").length + (line > 1 ? 1 : 0);
    const ends = text.indexOf("\n", starts);
    area.current?.focus();
    area.current?.setSelectionRange(starts, ends < 0 ? text.length : ends);
  };
  return (
    <div>
      <Group justify="space-between" align="flex-end" gap="xs" mb={4}>
        <label htmlFor={id} className="editor-label">
          {label}
        </label>
        <FileButton onChange={(file) => void file?.text().then(setText)} accept=".yaml,.yml,.json,text/*">
          {(props) => (
            <Button size="compact-xs" variant="default" {...props}>
              {t("editor.open")}
            </Button>
          )}
        </FileButton>
      </Group>
      <Text size="xs" className="dim" mb={6} id={`${id}-help`}>
        {help}
      </Text>
      <div className="editor" data-wrong={errors.length > 0}>
        <div className="editor-lines" ref={gutter} aria-hidden="true">
          {Array.from({ length: count }, (_, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: lines are their numbers
            <div key={index} data-wrong={wrong.has(index + 1)}>
              {index + 1}
            </div>
          ))}
        </div>
        <textarea
          id={id}
          ref={area}
          value={text}
          rows={Math.min(Math.max(count + 1, 14), 32)}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          wrap="off"
          aria-invalid={errors.length > 0}
          aria-describedby={`${id}-help ${id}-errors`}
          onChange={(event) => setText(event.currentTarget.value)}
          onKeyDown={indent}
          onScroll={(event) => {
            if (gutter.current) {
              gutter.current.scrollTop = event.currentTarget.scrollTop;
            }
          }}
        />
      </div>
      <ul className="editor-errors" id={`${id}-errors`} aria-live="polite">
        {errors.map((error) => (
          <li key={`${error.line} ${error.field} ${error.message}`}>
            <button type="button" onClick={() => goTo(error.line)}>
              {t("editor.line", { line: error.line })}
            </button>{" "}
            {error.field ? <strong>{visible(error.field)}: </strong> : null}
            {visible(error.message)}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A new line is indented like the last one. Tab moves on, as everywhere. */
function indent(event: KeyboardEvent<HTMLTextAreaElement>) {
  if (
    event.key !== "Enter" ||
    event.shiftKey ||
    event.ctrlKey ||
    event.metaKey ||
    event.nativeEvent.isComposing
  ) {
    return;
  }
  const { value, selectionStart } = event.currentTarget;
  const before = value.slice(value.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
  const depth = /^ */.exec(before)?.[0] ?? "";
  const space = /:\s*$/.test(before) ? `${depth}  ` : depth;
  if (space !== "") {
    event.preventDefault();
    // The only way that keeps the browser's undo.
    document.execCommand("insertText", false, `\n${space}`);
  }
}
