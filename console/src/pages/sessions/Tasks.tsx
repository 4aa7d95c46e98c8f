import { Group, NativeSelect, Text, TextInput } from "@mantine/core";
import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { isLive } from "@/api/statuses";
import { Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { Dialog, FormDialog } from "@/parts/FormDialog";
import { duration, number, visible } from "@/parts/format";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

type Task = Schemas["TaskView"];
type State = Task["state"];

const STATES = ["FAILED", "LOST", "SUCCEEDED", "GIVEN", "WAITING"] as const;
const COUNTS = ["succeeded", "failed", "lost", "given", "waiting"] as const;
// Nodes report their tasks every few seconds, without events.
const POLL_MS = 5000;

/** The tasks of a session's list: how many are in each state, and each attempt. */
export default function Tasks({ session }: { session: Session }) {
  const path = { params: { path: { ref: session.id } } };
  const live = isLive(session.status);
  const poll = live ? POLL_MS : false;
  const [state, setState] = useState<State | "">("");
  const summary = useQuery({
    queryKey: ["sessions", session.id, "tasks", "summary"],
    queryFn: () => unwrap(api.GET("/v1/sessions/{ref}/tasks/summary", path)),
    refetchInterval: poll,
  });
  const tasks = useInfiniteQuery({
    queryKey: ["sessions", session.id, "tasks", state],
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET("/v1/sessions/{ref}/tasks", {
          params: {
            ...path.params,
            query: { limit: 100, ...(state ? { state: [state] } : {}), ...(cursor ? { cursor } : {}) },
          },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    maxPages: 20,
    placeholderData: keepPreviousData,
    refetchInterval: poll,
  });
  const rows = tasks.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <Loaded query={summary} height={40}>
        {(found) => (
          <Group justify="space-between" mb="sm">
            <Text size="sm">
              {t("tasks.total", { count: found.total })}
              {COUNTS.filter((name) => found[name] > 0).map(
                (name) => ` · ${number(found[name])} ${t(`tasks.${name}`)}`,
              )}
            </Text>
            <Opener
              label={t("tasks.retry")}
              gone={live || found.total === found.succeeded}
              dialog={(close) => (
                <Retry session={session} count={found.total - found.succeeded} close={close} />
              )}
            />
          </Group>
        )}
      </Loaded>
      <Loaded query={tasks} height={240}>
        {() => (
          <DataTable<Task>
            label={t("tasks.title")}
            rows={rows}
            id={(task) => `${task.number}/${task.attempt}`}
            oneLine
            more={
              tasks.hasNextPage
                ? { load: () => void tasks.fetchNextPage(), loading: tasks.isFetchingNextPage }
                : undefined
            }
            filters={
              <NativeSelect
                size="xs"
                aria-label={t("field.status")}
                data={[{ value: "", label: t("tasks.any") }, ...STATES]}
                value={state}
                onChange={(event) => setState(event.currentTarget.value as State | "")}
              />
            }
            empty={<Empty title={t("tasks.none")} />}
            columns={[
              { key: "number", header: t("tasks.number"), right: true, cell: (task) => task.number },
              { key: "state", header: t("field.status"), cell: (task) => task.state },
              {
                key: "exit",
                header: t("tasks.exit"),
                right: true,
                cell: (task) => task.exit_code ?? "–",
              },
              {
                key: "lasted",
                header: t("tasks.lasted"),
                right: true,
                cell: (task) => lasted(task.seconds),
              },
              {
                key: "started",
                header: t("tasks.started"),
                wide: 1,
                cell: (task) => <Age at={task.started_at} />,
              },
              {
                key: "attempt",
                header: t("session.attempt"),
                wide: 2,
                right: true,
                cell: (task) => task.attempt,
              },
              { key: "agent", header: t("field.agent"), wide: 3, cell: (task) => task.agent_id ?? "–" },
              {
                key: "line",
                header: t("tasks.line"),
                cell: (task) => visible(task.line),
                line: (task) => visible(task.line),
              },
              {
                key: "action",
                header: t("field.action"),
                cell: (task) => (
                  <Opener
                    label={t("tasks.output")}
                    gone={!task.output && !task.detail}
                    dialog={(close) => <Output task={task} close={close} />}
                  />
                ),
              },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}

/** Most tasks are short. */
function lasted(seconds: number | null | undefined): string {
  if (seconds == null) return "–";
  return seconds < 10 ? `${seconds.toFixed(2)} s` : duration(seconds * 1000);
}

function Output({ task, close }: { task: Task; close: () => void }) {
  return (
    <Dialog title={t("tasks.outputOf", { number: task.number })} size="lg" close={close}>
      {task.detail ? <Text mb="sm">{visible(task.detail)}</Text> : null}
      {task.output ? <pre className="log">{visible(task.output)}</pre> : null}
    </Dialog>
  );
}

/** Starts a session with the tasks that did not succeed, and shows it. */
function Retry({ session, count, close }: { session: Session; count: number; close: () => void }) {
  const [name, setName] = useState("");
  const navigate = useNavigate();
  const save = async () => {
    const made = await unwrap(
      api.POST("/v1/sessions/{ref}/tasks/retry", {
        params: { path: { ref: session.id } },
        body: name.trim() ? { name: name.trim() } : {},
      }),
    );
    await navigate({ to: "/sessions/$ref", params: { ref: made.id }, search: { tab: "tasks" } });
  };
  return (
    <FormDialog
      title={t("tasks.retryTitle", { count })}
      verb={t("tasks.retry")}
      ready
      save={save}
      done={t("tasks.retried")}
      close={close}
    >
      <Text size="sm">{t("tasks.retryText")}</Text>
      <TextInput
        label={t("field.name")}
        description={t("newSession.nameHelp")}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
