import { Button, Group, List, Modal, Stack, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiProblem, NoAnswer } from "@/api/client";
import { refreshAll } from "@/api/queries";
import { t } from "@/texts";
import type { BulkAction } from "./Bulk";
import { visible } from "./format";
import { announce } from "./Outcomes";

interface Outcome {
  name: string;
  problem: string;
}

const AT_ONCE = 4;
const NAMED = 8;

function problemOf(error: unknown): string {
  return error instanceof ApiProblem
    ? error.message
    : error instanceof NoAnswer
      ? t("problem.silent")
      : String(error);
}

/** Asks before an action on the selected rows, carries it out, and shows what failed. */
export default function BulkDialog({
  action,
  rows,
  nameOf,
  close,
}: {
  action: BulkAction<unknown>;
  rows: unknown[];
  nameOf: (row: unknown) => string;
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
