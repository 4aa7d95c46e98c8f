import { Button } from "@mantine/core";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type CronJob, type CronJobFilter, cronJobPage } from "@/api/cron";
import { type Column, DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { pageFilter, useListView } from "@/parts/listView";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age, Moment } from "@/parts/Time";
import { t } from "@/texts";

/** When the next run is due, or why none is. */
export function NextRun({ job }: { job: CronJob }) {
  if (job.suspended) {
    return <StatusText status="suspended" />;
  }
  return job.next_at ? <Moment at={job.next_at} /> : <span className="dim">{t("cron.never")}</span>;
}

/** The state of the newest run, and how many were refused in a row. */
export function LastRun({ job }: { job: CronJob }) {
  const last = job.last_run;
  if (!last) {
    return <span>–</span>;
  }
  return (
    <div>
      <StatusText status={last.state} /> <Age at={last.scheduled_at} />
      {(job.refusals ?? 0) > 1 ? (
        <div className="dim">{t("cron.refusedInARow", { count: job.refusals ?? 0 })}</div>
      ) : null}
    </div>
  );
}

const COLUMNS: Column<CronJob>[] = [
  {
    key: "name",
    header: t("field.name"),
    order: "name",
    cell: (job) => (
      <Link to="/cron-jobs/$ref" params={{ ref: job.id }} className="link">
        {visible(job.name)}
      </Link>
    ),
  },
  {
    key: "cron",
    header: t("cron.times"),
    cell: (job) => (
      <span>
        <span className="mono">{visible(job.spec.cron)}</span>{" "}
        <span className="dim">{job.spec.time_zone ?? "UTC"}</span>
      </span>
    ),
  },
  { key: "next", header: t("cron.next"), cell: (job) => <NextRun job={job} /> },
  { key: "last", header: t("cron.last"), cell: (job) => <LastRun job={job} /> },
  { key: "user", header: t("field.user"), wide: true, cell: (job) => visible(job.user) },
  { key: "project", header: t("field.project"), wide: true, cell: (job) => visible(job.project) },
];

export function CronJobs() {
  const view = useListView();
  const filter = pageFilter(view, COLUMNS);
  const jobs = useInfiniteQuery({
    queryKey: ["cron-jobs", "pages", filter],
    queryFn: ({ pageParam }) => cronJobPage(filter as CronJobFilter, pageParam),
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    maxPages: 20,
    refetchInterval: 10_000,
  });
  const rows = jobs.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page
      title={t("nav.cronJobs")}
      lead={t("cron.lead")}
      may="change"
      actions={
        <Button size="xs" component={Link} to="/new-cron-job">
          {t("cron.create")}
        </Button>
      }
    >
      <Section title={t("cron.all")}>
        <Loaded query={jobs as never} height={300}>
          {() => (
            <DataTable
              label={t("nav.cronJobs")}
              rows={rows}
              id={(job) => job.id}
              columns={COLUMNS}
              view={view}
              remote
              nameOf={(job) => job.name}
              empty={
                <Empty
                  title={t("cron.empty")}
                  command="moorage cron create report --cron '30 7 * * MON-FRI' -- ./report.sh"
                >
                  {t("cron.emptyText")}
                </Empty>
              }
              more={
                jobs.hasNextPage
                  ? { load: () => void jobs.fetchNextPage(), loading: jobs.isFetchingNextPage }
                  : undefined
              }
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
