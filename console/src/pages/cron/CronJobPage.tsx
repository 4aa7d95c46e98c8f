import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { api, unwrap } from "@/api/client";
import { type CronJob, type CronRun, cronJobQuery, cronRunsQuery } from "@/api/cron";
import { SpecText } from "@/forms/SpecText";
import type { Values } from "@/forms/values";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { type Column, DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age, Moment } from "@/parts/Time";
import { t } from "@/texts";
import { NextRun } from "./CronJobs";

export function CronJobPage() {
  const { ref } = useParams({ from: "/cron-jobs/$ref" });
  const job = useQuery(cronJobQuery(ref));
  return (
    <Loaded query={job} height={300} page={visible(ref)}>
      {({ value: found }) => (
        <Page
          title={visible(found.name)}
          lead={
            <>
              <span className="mono">{visible(found.spec.cron)}</span> {found.spec.time_zone ?? "UTC"} ·{" "}
              {visible(found.project)}/{visible(found.user)}
            </>
          }
          may="change"
          actions={<Actions job={found} />}
        >
          <Section title={t("cron.about")}>
            <Facts
              facts={[
                [t("cron.next"), <NextRun key="next" job={found} />],
                [t("cron.concurrency"), t(`cron.concurrency_${found.spec.concurrency ?? "forbid"}`)],
                [t("cron.missed"), t(`cron.missed_${found.spec.missed === "run-once" ? "once" : "skip"}`)],
                ...(found.refusals
                  ? ([[t("cron.refused"), t("cron.refusedInARow", { count: found.refusals })]] as [
                      string,
                      string,
                    ][])
                  : []),
                [t("field.created"), <Age key="created" at={found.created_at} />],
                [
                  "id",
                  <span key="id" className="mono">
                    {found.id}
                  </span>,
                ],
              ]}
            />
          </Section>
          <Section title={t("cron.runs")}>
            <Runs job={found} />
          </Section>
          <Section title={t("cron.spec")}>
            <SpecText label={t("cron.spec")} value={found.spec as unknown as Values} />
          </Section>
        </Page>
      )}
    </Loaded>
  );
}

function Actions({ job }: { job: CronJob }) {
  const navigate = useNavigate();
  const name = visible(job.name);
  const path = { params: { path: { ref: job.id } } };
  const run = useAction(
    () => unwrap(api.POST("/v1/cron-jobs/{ref}/run", path)),
    () => t("cron.started", { name }),
  );
  const change = useAction(
    () =>
      unwrap(
        job.suspended
          ? api.POST("/v1/cron-jobs/{ref}/resume", path)
          : api.POST("/v1/cron-jobs/{ref}/suspend", path),
      ),
    () => t(job.suspended ? "cron.resumed" : "cron.suspended", { name }),
  );
  return (
    <>
      <Button size="xs" variant="default" loading={run.isPending} onClick={() => run.mutate()}>
        {t("cron.runNow")}
      </Button>
      <Button size="xs" variant="default" loading={change.isPending} onClick={() => change.mutate()}>
        {t(job.suspended ? "cron.resume" : "cron.suspend")}
      </Button>
      <Button
        size="xs"
        variant="default"
        onClick={() => void navigate({ to: "/cron-jobs/$ref/change", params: { ref: job.id } })}
      >
        {t("cron.change")}
      </Button>
      <Opener
        label={t("cron.delete")}
        danger
        dialog={(close) => (
          <Confirm
            title={t("cron.deleteTitle", { name })}
            consequences={[t("cron.deleteRuns"), t("cron.deleteKeeps")]}
            verb={t("cron.delete")}
            act={async () => {
              await unwrap(api.DELETE("/v1/cron-jobs/{ref}", path));
              await navigate({ to: "/cron-jobs" });
            }}
            done={t("cron.deleted", { name })}
            close={close}
          />
        )}
      />
      {run.error || change.error ? <Refusal error={run.error ?? change.error} /> : null}
    </>
  );
}

function Refusal({ error }: { error: unknown }) {
  return (
    <div role="alert" className="wrap field-error">
      {error instanceof Error ? error.message : String(error)}
    </div>
  );
}

const RUNS: Column<CronRun>[] = [
  { key: "at", header: t("cron.scheduled"), cell: (run) => <Moment at={run.scheduled_at} /> },
  {
    key: "state",
    header: t("field.status"),
    cell: (run) => (
      <span>
        <StatusText status={run.state} />
        {run.by_hand ? <span className="dim"> {t("cron.byHand")}</span> : null}
      </span>
    ),
  },
  { key: "session", header: t("cron.work"), cell: (run) => <Work run={run} /> },
  { key: "reason", header: t("cron.reason"), cell: (run) => <Reason run={run} /> },
];

function Work({ run }: { run: CronRun }) {
  if (run.pipeline_id) {
    return (
      <Link to="/pipelines/$ref" params={{ ref: run.pipeline_id }} className="link">
        {visible(run.pipeline ?? run.pipeline_id)}
      </Link>
    );
  }
  return run.session_id ? (
    <Link to="/sessions/$ref" params={{ ref: run.session_id }} className="link">
      {visible(run.session ?? run.session_id)}
    </Link>
  ) : (
    <span>–</span>
  );
}

function Reason({ run }: { run: CronRun }) {
  if ((run.missed ?? 0) > 1) {
    return <span>{t("cron.missedRuns", { count: run.missed ?? 0 })}</span>;
  }
  return <span className="wrap">{visible(run.reason ?? "")}</span>;
}

function Runs({ job }: { job: CronJob }) {
  const runs = useQuery(cronRunsQuery(job.id));
  return (
    <Loaded query={runs} height={200}>
      {(page) => (
        <DataTable
          label={t("cron.runs")}
          rows={page.items}
          id={(run) => run.id}
          columns={RUNS}
          empty={<Empty title={t("cron.noRuns")}>{t("cron.noRunsText")}</Empty>}
        />
      )}
    </Loaded>
  );
}
