import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Pipeline } from "@/api/client";
import { pipelinePage } from "@/api/queries";
import { type Column, DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { Counts } from "./Counts";

const COLUMNS: Column<Pipeline>[] = [
  {
    key: "name",
    header: t("field.pipeline"),
    cell: (pipeline) => (
      <Link to="/pipelines/$ref" params={{ ref: pipeline.id }} className="link">
        {visible(pipeline.name)}
      </Link>
    ),
  },
  { key: "state", header: t("field.status"), cell: (pipeline) => <StatusText status={pipeline.state} /> },
  { key: "steps", header: t("pipeline.steps"), cell: (pipeline) => <Counts counts={pipeline.counts} /> },
  { key: "user", header: t("field.user"), wide: true, cell: (pipeline) => visible(pipeline.user) },
  { key: "project", header: t("field.project"), wide: true, cell: (pipeline) => visible(pipeline.project) },
  { key: "created", header: t("field.created"), cell: (pipeline) => <Age at={pipeline.created_at} /> },
];

export function Pipelines() {
  const pipelines = useInfiniteQuery({
    queryKey: ["pipelines", "pages"],
    queryFn: ({ pageParam }) => pipelinePage(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    maxPages: 20,
    refetchInterval: 10_000,
  });
  const rows = pipelines.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page title={t("nav.pipelines")} lead={t("pipelines.lead")}>
      <Section title={t("pipelines.all")}>
        <Loaded query={pipelines as never} height={300}>
          {() => (
            <DataTable
              label={t("nav.pipelines")}
              rows={rows}
              id={(pipeline) => pipeline.id}
              columns={COLUMNS}
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
