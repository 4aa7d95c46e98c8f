import { useInViewport } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Suspense } from "react";
import { usePlatformRole } from "@/api/auth";
import type { Session } from "@/api/client";
import { api, unwrapVersioned } from "@/api/client";
import { occupancyQuery, sessionsQuery, whyQuery } from "@/api/queries";
import { Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { slotsText, visible } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { OccupancyGrid } from "@/parts/OccupancyGrid";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { ExpectedStart } from "@/parts/Why";
import { t } from "@/texts";
import { FormerNames } from "./FormerNames";
import { GroupForm } from "./GroupForm";
import { Rename } from "./Rename";
import { Retire } from "./Retire";

const History = lazy(() => import("@/charts/History"));
const SchedulerLog = lazy(() => import("@/pages/scheduling/GroupPasses"));

// As many as a user looks at.
const QUEUED = 12;

export function GroupPage() {
  const { name } = useParams({ from: "/groups/$name" });
  const platform = usePlatformRole();
  const group = useQuery({
    queryKey: ["groups", name],
    queryFn: () => unwrapVersioned(api.GET("/v1/groups/{name}", { params: { path: { name } } })),
  });
  const occupancy = useQuery(occupancyQuery({ resource_group: name }));
  const queue = useQuery(sessionsQuery({ resource_group: name, status: ["PENDING"], limit: QUEUED }));
  return (
    <Page
      title={name}
      lead={t("group.lead")}
      may="administer"
      actions={
        <>
          <Link to="/sessions" search={{ group: name }} className="link">
            {t("group.sessions")}
          </Link>
          {group.data ? (
            <Opener
              label={t("action.edit")}
              dialog={(close) => (
                <GroupForm
                  name={name}
                  group={{ value: group.data.value.options, etag: group.data.etag }}
                  close={close}
                />
              )}
            />
          ) : null}
          {group.data && !group.data.value.retired_at ? (
            <Rename group={group.data.value} etag={group.data.etag} />
          ) : null}
          {group.data ? <Retire group={group.data.value} etag={group.data.etag} /> : null}
        </>
      }
    >
      {group.data?.value.retired_at ? (
        <div className="banner" role="status">
          {t("group.retiredSince")} <Age at={group.data.value.retired_at} />
        </div>
      ) : null}
      <Section title={t("group.occupancy")}>
        <Loaded query={occupancy} height={240}>
          {(agents) => <OccupancyGrid agents={agents} />}
        </Loaded>
      </Section>
      <Suspense fallback={<div className="chart-space" />}>
        <History group={name} />
      </Suspense>
      <Section title={t("group.queue")}>
        <Loaded query={queue}>{(page) => <GroupQueue sessions={page.items} />}</Loaded>
      </Section>
      <Loaded query={group}>
        {({ value }) => (
          <Section title={t("group.options")}>
            <Facts
              facts={[
                [t("group.strategy"), value.options.strategy],
                [t("group.hol"), value.options.hol],
                [t("group.selection"), value.options.agent_selection],
                [t("group.replicas"), value.options.replicas],
                [t("group.fraction"), value.options.fraction],
                [t("group.types"), value.options.session_types?.join(", ") ?? t("group.allTypes")],
                [t("group.projects"), value.options.projects?.join(", ") ?? t("group.everyone")],
                [t("group.users"), value.options.users?.join(", ") ?? t("group.everyone")],
                [
                  t("hpc.kind"),
                  value.options.hpc
                    ? t("hpc.jobs", {
                        runtime: value.options.hpc.runtime,
                        hours: value.options.hpc.walltime_s / 3600,
                      })
                    : t("hpc.nodes"),
                ],
                [t("group.images"), value.options.images?.join(", ") ?? t("group.allImages")],
                [
                  t("group.preemption"),
                  value.options.preemption
                    ? t("group.preemptionRules", value.options.preemption)
                    : t("group.never"),
                ],
                [
                  t("group.ceilings"),
                  t("group.ceilingsOf", {
                    member: value.options.max_priority?.member ?? 10,
                    admin: value.options.max_priority?.project_admin ?? 100,
                  }),
                ],
              ]}
            />
          </Section>
        )}
      </Loaded>
      {platform ? (
        <Suspense>
          <SchedulerLog group={name} />
        </Suspense>
      ) : null}
      {group.data ? <FormerNames group={group.data.value} /> : null}
    </Page>
  );
}

const whyOf = (session: Session) => visible(session.hold?.text ?? t("queue.fresh"));

function GroupQueue({ sessions }: { sessions: Session[] }) {
  return (
    <DataTable
      label={t("queue.label")}
      rows={sessions}
      id={(session) => session.id}
      oneLine
      empty={<Empty title={t("queue.empty")} />}
      columns={[
        {
          key: "name",
          header: t("field.session"),
          cell: (session) => (
            <Link to="/sessions/$ref" params={{ ref: session.id }} className="link">
              {visible(session.name)}
            </Link>
          ),
        },
        { key: "user", header: t("field.user"), wide: true, cell: (session) => visible(session.user ?? "") },
        {
          key: "slots",
          header: t("field.requested"),
          wide: 0.5,
          cell: (session) => slotsText(session.slots),
        },
        { key: "since", header: t("field.waiting"), cell: (session) => <Age at={session.created_at} /> },
        { key: "start", header: t("why.expected"), wide: 1, cell: (session) => <Start id={session.id} /> },
        { key: "why", header: t("field.why"), line: whyOf, cell: whyOf },
      ]}
    />
  );
}

/** When it can start: an estimate that costs the manager more than the row, so only rows on the screen ask for it. */
function Start({ id }: { id: string }) {
  const { ref, inViewport } = useInViewport<HTMLSpanElement>();
  const why = useQuery({ ...whyQuery(id), refetchInterval: 30_000, enabled: inViewport });
  return (
    <span ref={ref}>{why.data ? <ExpectedStart why={why.data} /> : <span className="dim">…</span>}</span>
  );
}
