import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMay } from "@/api/auth";
import { api, type Endpoint, unwrap } from "@/api/client";
import { endpointsQuery } from "@/api/queries";
import type { BulkAction } from "@/parts/Bulk";
import { type Column, DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { useListView } from "@/parts/listView";
import { Only } from "@/parts/Only";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

const COLUMNS: Column<Endpoint>[] = [
  {
    key: "name",
    header: t("field.name"),
    sort: (endpoint) => endpoint.name,
    cell: (endpoint) => (
      <Link to="/endpoints/$name" params={{ name: endpoint.name }} className="link">
        {visible(endpoint.name)}
      </Link>
    ),
  },
  {
    key: "status",
    header: t("field.status"),
    sort: (endpoint) => endpoint.status,
    cell: (endpoint) => <StatusText status={endpoint.status} />,
  },
  {
    key: "replicas",
    header: t("endpoints.replicas"),
    sort: (endpoint) => endpoint.replicas,
    right: true,
    cell: (endpoint) => `${endpoint.ready} / ${endpoint.replicas}`,
  },
  {
    key: "load",
    header: t("endpoints.requests"),
    sort: (endpoint) => (endpoint.running ?? 0) + (endpoint.waiting ?? 0),
    right: true,
    cell: (endpoint) =>
      t("endpoints.load", { running: endpoint.running ?? 0, waiting: endpoint.waiting ?? 0 }),
  },
  {
    key: "project",
    header: t("field.project"),
    sort: (endpoint) => endpoint.project,
    wide: true,
    cell: (endpoint) => visible(endpoint.project ?? ""),
  },
  {
    key: "revision",
    header: t("endpoints.revision"),
    sort: (endpoint) => endpoint.revision ?? 1,
    right: true,
    wide: true,
    cell: (endpoint) => endpoint.revision ?? 1,
  },
  {
    key: "created",
    header: t("field.created"),
    sort: (endpoint) => endpoint.created_at,
    wide: true,
    cell: (endpoint) => <Age at={endpoint.created_at} />,
  },
];

const BULK: BulkAction<Endpoint>[] = [
  {
    key: "delete",
    verb: t("bulk.delete"),
    danger: true,
    applies: () => true,
    consequence: t("bulk.deleteEndpoints"),
    act: ({ name }) => unwrap(api.DELETE("/v1/endpoints/{name}", { params: { path: { name } } })),
  },
];

export function Endpoints() {
  const mayChange = useMay("change");
  const endpoints = useQuery(endpointsQuery);
  const view = useListView();
  return (
    <Page
      title={t("nav.endpoints")}
      lead={t("endpoints.lead")}
      actions={
        <Only may="change">
          <Button size="xs" variant="default" component={Link} to="/catalog">
            {t("endpoints.ofCatalog")}
          </Button>
          <Button size="xs" component={Link} to="/new-endpoint">
            {t("endpoints.create")}
          </Button>
        </Only>
      }
    >
      <Section title={t("endpoints.all")}>
        <Loaded query={endpoints} height={240}>
          {(rows) => (
            <DataTable
              label={t("nav.endpoints")}
              rows={rows}
              id={(endpoint) => endpoint.id}
              columns={COLUMNS}
              view={view}
              searched={(endpoint) => endpoint.name}
              nameOf={(endpoint) => endpoint.name}
              bulk={mayChange ? BULK : undefined}
              empty={<Empty title={t("endpoints.empty")} command="moorage serve ./model.gguf" />}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
