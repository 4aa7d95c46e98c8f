import { Code, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type ReactNode, Suspense } from "react";
import { usePlatformRole } from "@/api/auth";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { historyQuery, sessionQuery, whyQuery } from "@/api/queries";
import { isLive, shownStatus } from "@/api/statuses";
import type { SessionTab } from "@/app/router";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { duration, reasonText, slotsText, visible } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { Facts, Page, Section } from "@/parts/Page";
import { Progress } from "@/parts/Progress";
import { Empty, Loaded } from "@/parts/States";
import { StatusText, toneOf } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { WhyDetails } from "@/parts/Why";
import { t } from "@/texts";
import { SessionActions } from "./Actions";
import { Apps } from "./Apps";
import { Logs } from "./Logs";
import { Marks } from "./Marks";
import { ReloadButton, Reloads, useReload } from "./Reload";

const Usage = lazy(() => import("./Usage"));
const Terminal = lazy(() => import("./Terminal"));
const SessionPasses = lazy(() => import("@/pages/scheduling/SessionPasses"));
const Files = lazy(() => import("./Files"));
const Tasks = lazy(() => import("./Tasks"));

export function SessionPage() {
  const { ref } = useParams({ from: "/sessions/$ref" });
  const session = useQuery(sessionQuery(ref));
  return (
    <Loaded query={session} height={300} page={visible(ref)}>
      {(found) => <Shown session={found} />}
    </Loaded>
  );
}

function Shown({ session: found }: { session: Session }) {
  const reload = useReload(found);
  const platform = usePlatformRole();
  const { tab = "about" } = useSearch({ from: "/sessions/$ref" });
  const navigate = useNavigate({ from: "/sessions/$ref" });
  const runs = found.status === "RUNNING";
  // A session that has ended under an open tab is not hidden with it.
  const has = (name: SessionTab) => runs || tab === name;
  return (
    <Page
      title={visible(found.name)}
      lead={
        <>
          <StatusText status={shownStatus(found)} />
          <Marks session={found} /> · {found.type} · {visible(found.project ?? "")}/
          {visible(found.user ?? "")}
        </>
      }
      may="change"
      actions={
        <>
          <ReloadButton session={found} action={reload} />
          <SessionActions session={found} />
          <Stop session={found} />
        </>
      }
    >
      {found.status === "PENDING" ? <Why id={found.id} /> : null}
      <Suspended session={found} />
      <Ended session={found} />
      <Reloads session={found} action={reload} />
      <Tabs
        value={tab}
        onChange={(value) => {
          const next = value === "about" ? undefined : (value as SessionTab);
          void navigate({ search: { tab: next }, replace: true });
        }}
        keepMounted={false}
        className="section"
      >
        <Tabs.List mb="md">
          <Tabs.Tab value="about">{t("session.about")}</Tabs.Tab>
          <Tabs.Tab value="timeline">{t("session.timeline")}</Tabs.Tab>
          <Tabs.Tab value="logs">{t("session.logs")}</Tabs.Tab>
          {found.spec.tasks ? <Tabs.Tab value="tasks">{t("tasks.title")}</Tabs.Tab> : null}
          {has("terminal") ? <Tabs.Tab value="terminal">{t("session.terminal")}</Tabs.Tab> : null}
          {has("files") ? <Tabs.Tab value="files">{t("session.files")}</Tabs.Tab> : null}
          <Tabs.Tab value="usage">{t("session.usage")}</Tabs.Tab>
          {platform ? <Tabs.Tab value="scheduling">{t("session.scheduling")}</Tabs.Tab> : null}
          <Tabs.Tab value="spec">{t("session.spec")}</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="about">
          <About session={found} />
        </Tabs.Panel>
        <Tabs.Panel value="timeline">
          <Timeline id={found.id} />
        </Tabs.Panel>
        <Tabs.Panel value="logs">
          <Logs session={found} live={isLive(found.status)} />
        </Tabs.Panel>
        <Tabs.Panel value="tasks">
          <Suspense>
            <Tasks session={found} />
          </Suspense>
        </Tabs.Panel>
        <Tabs.Panel value="terminal">
          <Suspense>
            <Terminal session={found} />
          </Suspense>
        </Tabs.Panel>
        <Tabs.Panel value="files">
          <Suspense>
            <Files session={found} />
          </Suspense>
        </Tabs.Panel>
        <Tabs.Panel value="usage">
          <Suspense>
            <Usage id={found.id} />
          </Suspense>
        </Tabs.Panel>
        <Tabs.Panel value="scheduling">
          <Suspense>
            <SessionPasses id={found.id} group={found.resource_group} since={found.created_at} />
          </Suspense>
        </Tabs.Panel>
        <Tabs.Panel value="spec">
          <Code block className="wrap">
            {visible(JSON.stringify(found.spec, null, 2))}
          </Code>
        </Tabs.Panel>
      </Tabs>
    </Page>
  );
}

function Stop({ session }: { session: Session }) {
  const ended = !isLive(session.status);
  const lines = ended
    ? [t("session.stopEnded")]
    : [
        session.status === "PENDING"
          ? t("session.stopPending")
          : t("session.stopRunning", { count: (session.kernels ?? []).length }),
        ...(session.endpoint ? [t("session.stopReplica", { endpoint: session.endpoint })] : []),
      ];
  return (
    <Opener
      label={t("session.stop")}
      danger
      gone={ended}
      dialog={(close) => (
        <Confirm
          title={t("session.stopTitle", { name: visible(session.name) })}
          consequences={lines}
          verb={t("session.stop")}
          act={() => unwrap(api.POST("/v1/sessions/{ref}/stop", { params: { path: { ref: session.id } } }))}
          done={t("session.stopped", { name: visible(session.name) })}
          close={close}
        />
      )}
    />
  );
}

function Suspended({ session }: { session: Session }) {
  return session.suspended ? (
    <Section title={t("session.suspended")}>
      <p className="card-line">{t("session.suspendedBy", { by: visible(session.suspended.by) })}</p>
    </Section>
  ) : null;
}

function Why({ id }: { id: string }) {
  const why = useQuery({ ...whyQuery(id), refetchInterval: 10_000 });
  return (
    <Section title={t("session.why")}>
      <Loaded query={why}>{(found) => <WhyDetails why={found} />}</Loaded>
    </Section>
  );
}

function Ended({ session }: { session: Session }) {
  if (!session.reason && !session.detail) {
    return null;
  }
  const tail = (session.kernels ?? []).map((kernel) => kernel.log_tail ?? "").find(Boolean);
  return (
    <Section title={t("session.reason")}>
      <p className="card-line">
        <strong>{reasonText(session.reason)}</strong> {visible(session.detail)}
      </p>
      {session.status === "ERROR" && tail ? <pre className="log">{visible(tail)}</pre> : null}
    </Section>
  );
}

function About({ session }: { session: Session }) {
  return (
    <>
      <Facts
        facts={[
          [
            t("field.group"),
            <Link key="group" to="/groups/$name" params={{ name: session.resource_group }} className="link">
              {session.resource_group}
            </Link>,
          ],
          [t("field.requested"), slotsText(session.slots)],
          [t("session.priority"), session.priority],
          [t("session.attempt"), session.attempt],
          [t("field.created"), <Age key="created" at={session.created_at} />],
          [t("session.since"), <Age key="since" at={session.status_since} />],
          [
            t("form.userLabels"),
            Object.entries(session.user_labels ?? {})
              .map(([name, value]) => visible(`${name}=${value}`))
              .join(", ") || null,
          ],
          ...(session.template
            ? ([
                [
                  t("field.template"),
                  <Link
                    key="template"
                    to="/templates/$name"
                    params={{ name: session.template.split("@")[0] ?? "" }}
                    className="link"
                  >
                    {visible(session.template)}
                  </Link>,
                ],
              ] as [string, ReactNode][])
            : []),
          [t("session.deadline"), <Age key="deadline" at={session.deadline_at} />],
          [
            t("field.endpoint"),
            session.endpoint ? (
              <Link key="endpoint" to="/endpoints/$name" params={{ name: session.endpoint }} className="link">
                {session.endpoint}
              </Link>
            ) : null,
          ],
          [
            "id",
            <span key="id" className="mono">
              {session.id}
            </span>,
          ],
        ]}
      />
      <h2 className="part-title">{t("session.kernels")}</h2>
      <DataTable
        label={t("session.kernels")}
        rows={session.kernels ?? []}
        id={(kernel) => kernel.id}
        empty={<Empty title={t("session.noKernels")} />}
        columns={[
          { key: "host", header: t("session.kernel"), cell: (kernel) => kernel.hostname },
          {
            key: "status",
            header: t("field.status"),
            cell: (kernel) => <StatusText status={kernel.status} />,
          },
          {
            key: "agent",
            header: t("field.agent"),
            cell: (kernel) =>
              kernel.agent_id ? (
                <Link to="/agents/$id" params={{ id: kernel.agent_id }} className="link">
                  {kernel.agent_id}
                </Link>
              ) : (
                "–"
              ),
          },
          {
            key: "devices",
            header: t("agent.devices"),
            cell: (kernel) => (kernel.devices ?? []).map((device) => device.device_id).join(", ") || "–",
          },
          {
            key: "progress",
            header: t("field.progress"),
            cell: (kernel) => <Progress progress={kernel.progress} />,
          },
          { key: "detail", header: t("field.detail"), cell: (kernel) => visible(kernel.detail ?? "") || "–" },
        ]}
      />
      <Apps session={session} />
    </>
  );
}

function Timeline({ id }: { id: string }) {
  const history = useQuery(historyQuery(id));
  return (
    <Loaded query={history}>
      {(entries) => (
        <ol className="timeline" aria-label={t("session.timeline")}>
          {entries.map((entry, index) => (
            <Entry key={entry.revision} entry={entry} next={entries[index + 1]} />
          ))}
        </ol>
      )}
    </Loaded>
  );
}

type HistoryEntry = Schemas["HistoryEntry"];

function Entry({ entry, next }: { entry: HistoryEntry; next: HistoryEntry | undefined }) {
  const lasted = next ? duration(Date.parse(next.at) - Date.parse(entry.at)) : "";
  return (
    <li data-tone={toneOf(entry.to_status)}>
      <div>
        <StatusText status={entry.to_status} />
        {lasted ? <div className="dim">{t("session.lasted", { duration: lasted })}</div> : null}
      </div>
      <div>
        <div>
          {reasonText(entry.event)}
          {entry.reason ? `: ${reasonText(entry.reason)}` : ""}
        </div>
        {entry.detail ? <div className="wrap">{visible(entry.detail)}</div> : null}
        <div className="dim">
          <Age at={entry.at} /> · {visible(entry.actor)}
        </div>
      </div>
    </li>
  );
}
