import { Button } from "@mantine/core";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMay } from "@/api/auth";
import { api, type Pipeline, unwrap } from "@/api/client";
import { type PipelineFilter, pipelinePage } from "@/api/queries";
import type { BulkAction } from "@/parts/Bulk";
import { type Column, DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { pageFilter, useListView } from "@/parts/listView";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { Counts } from "./Counts";

/** The indexes of a pipeline that is one array, such as [0-99%10], so that it is one row like any other. */
const arraysOf = ({ arrays = [] }: Pipeline) =>
  arrays.length === 1 && arrays[0] ? ` [${visible(arrays[0].array)}]` : "";

const COLUMNS: Column<Pipeline>[] = [
  {
    key: "name",
    header: t("field.pipeline"),
    order: "name",
    cell: (pipeline) => (
      <Link to="/pipelines/$ref" params={{ ref: pipeline.id }} className="link">
        {visible(pipeline.name)}
        {arraysOf(pipeline)}
      </Link>
    ),
  },
  { key: "state", header: t("field.status"), cell: (pipeline) => <StatusText status={pipeline.state} /> },
  { key: "steps", header: t("pipeline.steps"), cell: (pipeline) => <Counts counts={pipeline.counts} /> },
  { key: "user", header: t("field.user"), wide: true, cell: (pipeline) => visible(pipeline.user) },
  { key: "project", header: t("field.project"), wide: true, cell: (pipeline) => visible(pipeline.project) },
  {
    key: "created",
    header: t("field.created"),
    order: "created_at",
    cell: (pipeline) => <Age at={pipeline.created_at} />,
  },
];

const BULK: BulkAction<Pipeline>[] = [
  {
    key: "stop",
    verb: t("bulk.stop"),
    danger: true,
    applies: ({ counts }) => (counts.pending ?? 0) + (counts.running ?? 0) > 0,
    consequence: t("bulk.stopPipelines"),
    act: (pipeline) =>
      unwrap(api.POST("/v1/pipelines/{ref}/stop", { params: { path: { ref: pipeline.id } } })),
  },
];

export function Pipelines() {
  const view = useListView();
  const mayChange = useMay("change");
  const filter = pageFilter(view, COLUMNS);
  const pipelines = useInfiniteQuery({
    queryKey: ["pipelines", "pages", filter],
    queryFn: ({ pageParam }) => pipelinePage(filter as PipelineFilter, pageParam),
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    maxPages: 20,
    refetchInterval: 10_000,
  });
  const rows = pipelines.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page
      title={t("nav.pipelines")}
      lead={t("pipelines.lead")}
      may="change"
      actions={
        <Button size="xs" component={Link} to="/new-pipeline">
          {t("pipelines.create")}
        </Button>
      }
    >
      <Section title={t("pipelines.all")}>
        <Loaded query={pipelines as never} height={300}>
          {() => (
            <DataTable
              label={t("nav.pipelines")}
              rows={rows}
              id={(pipeline) => pipeline.id}
              columns={COLUMNS}
              view={view}
              remote
              nameOf={(pipeline) => pipeline.name}
              bulk={mayChange ? BULK : undefined}
              empty={
                <Empty title={t("pipelines.empty")} command="moorage pipelines submit -f train.yaml">
                  {t("pipelines.emptyText")}
                </Empty>
              }
              more={
                pipelines.hasNextPage
                  ? { load: () => void pipelines.fetchNextPage(), loading: pipelines.isFetchingNextPage }
                  : undefined
              }
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
