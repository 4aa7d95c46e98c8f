import { Button, Group, List, Modal, Stack, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiProblem, NoAnswer } from "@/api/client";
import { refreshAll } from "@/api/queries";
import { t } from "@/texts";
import { announce } from "./actions";
import { visible } from "./format";

/** An action on each of the selected rows. */
export interface BulkAction<T> {
  key: string;
  verb: string;
  danger?: boolean;
  /** Whether the action means anything for this row; others are left out. */
  applies: (row: T) => boolean;
  /** What happens, in the confirmation. */
  consequence: string;
  act: (row: T) => Promise<unknown>;
}

interface Outcome {
  name: string;
  problem: string;
}

const AT_ONCE = 4;
const NAMED = 8;

/** A button for each action that applies to at least one of the selected rows, with their number. */
export function BulkBar<T>({
  selected,
  actions,
  nameOf,
  clear,
}: {
  selected: T[];
  actions: BulkAction<T>[];
  nameOf: (row: T) => string;
  clear: () => void;
}) {
  // The rows of an open dialog stay as they were when it was opened, whatever happens in the list.
  const [open, setOpen] = useState<{ action: BulkAction<T>; rows: T[] } | null>(null);
  return (
    <Group gap="xs" className="bulk" role="toolbar" aria-label={t("bulk.label")}>
      <Text size="sm">{t("bulk.selected", { count: selected.length })}</Text>
      {actions.map((action) => {
        const rows = selected.filter(action.applies);
        return rows.length === 0 ? null : (
          <Button
            key={action.key}
            size="xs"
            variant="default"
            className={action.danger ? "danger" : undefined}
            onClick={() => setOpen({ action, rows })}
          >
            {t("bulk.action", { verb: action.verb, count: rows.length })}
          </Button>
        );
      })}
      <Button size="xs" variant="subtle" onClick={clear}>
        {t("bulk.clear")}
      </Button>
      {open ? (
        <BulkDialog
          action={open.action}
          rows={open.rows}
          nameOf={nameOf}
          close={(done) => {
            setOpen(null);
            if (done) {
              clear();
            }
          }}
        />
      ) : null}
    </Group>
  );
}

function problemOf(error: unknown): string {
  return error instanceof ApiProblem
    ? error.message
    : error instanceof NoAnswer
      ? t("problem.silent")
      : String(error);
}

function BulkDialog<T>({
  action,
  rows,
  nameOf,
  close,
}: {
  action: BulkAction<T>;
  rows: T[];
  nameOf: (row: T) => string;
  close: (done: boolean) => void;
}) {
  const client = useQueryClient();
  const [outcomes, setOutcomes] = useState<Outcome[] | null>(null);
  const running = outcomes !== null && outcomes.length < rows.length;
  const failed = (outcomes ?? []).filter(({ problem }) => problem !== "");
  const run = async () => {
    const done: Outcome[] = [];
    const waiting = [...rows];
    setOutcomes([]);
    const work = async () => {
      for (let row = waiting.shift(); row !== undefined; row = waiting.shift()) {
        const name = nameOf(row);
        try {
          await action.act(row);
          done.push({ name, problem: "" });
        } catch (error) {
          done.push({ name, problem: problemOf(error) });
        }
        setOutcomes([...done]);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    void refreshAll(client);
    if (done.every(({ problem }) => problem === "")) {
      announce(t("bulk.done", { verb: action.verb, count: done.length }));
      close(true);
    }
  };
  return (
    <Modal
      opened
      onClose={() => close(outcomes !== null)}
      closeOnClickOutside={!running}
      closeOnEscape={!running}
      withCloseButton={!running}
      title={t("bulk.title", { verb: action.verb, count: rows.length })}
      closeButtonProps={{ "aria-label": t("action.close") }}
    >
      <Stack gap="md">
        {outcomes === null ? (
          <>
            <Text size="sm">{action.consequence}</Text>
            <Names names={rows.map(nameOf)} />
          </>
        ) : (
          <div aria-live="polite">
            <Text size="sm">
              {t("bulk.progress", { done: outcomes.length - failed.length, count: rows.length })}
              {failed.length > 0 ? ` ${t("bulk.failed", { count: failed.length })}` : ""}
            </Text>
            <List size="sm" spacing={4} className="bulk-problems">
              {failed.map(({ name, problem }) => (
                <List.Item key={name}>
                  <strong className="wrap">{visible(name)}</strong> {visible(problem)}
                </List.Item>
              ))}
            </List>
          </div>
        )}
        <Group justify="flex-end" gap="xs">
          {outcomes === null ? (
            <>
              <Button variant="default" onClick={() => close(false)} data-autofocus>
                {t("action.cancel")}
              </Button>
              <Button color={action.danger ? "red.8" : undefined} onClick={() => void run()}>
                {t("bulk.action", { verb: action.verb, count: rows.length })}
              </Button>
            </>
          ) : (
            <Button variant="default" disabled={running} onClick={() => close(true)}>
              {t("action.close")}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}

function Names({ names }: { names: string[] }) {
  return (
    <List size="sm" spacing={2}>
      {names.slice(0, NAMED).map((name) => (
        <List.Item key={name} className="wrap">
          {visible(name)}
        </List.Item>
      ))}
      {names.length > NAMED ? <List.Item>{t("bulk.more", { count: names.length - NAMED })}</List.Item> : null}
    </List>
  );
}
