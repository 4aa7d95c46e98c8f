import { Button, Group, NumberInput, Select, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { groupsQuery } from "@/api/queries";
import { type Column, DataTable } from "@/parts/DataTable";
import { Dialog } from "@/parts/FormDialog";
import { bytes, visible } from "@/parts/format";
import { useListView } from "@/parts/listView";
import { Only } from "@/parts/Only";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded, Problem } from "@/parts/States";
import { t } from "@/texts";
import { fitQuery } from "./catalogFit";

type Model = Schemas["CatalogModelView"];
type Fit = Schemas["CatalogFitView"];
type Node = Fit["nodes"][number];

const count = (parameters: number) =>
  parameters >= 1e9
    ? t("catalog.billions", { size: Number((parameters / 1e9).toPrecision(3)) })
    : t("catalog.millions", { size: Number((parameters / 1e6).toPrecision(3)) });

/** Well-tried models, and the GPUs that fit them. The form of an endpoint starts from one of them. */
export function Catalog() {
  const models = useQuery({
    queryKey: ["catalog"],
    queryFn: async () => (await unwrap(api.GET("/v1/catalog"))).items,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const view = useListView();
  const [chosen, setChosen] = useState<Model>();
  const columns: Column<Model>[] = [
    {
      key: "id",
      header: t("endpoint.model"),
      sort: (model) => model.id,
      cell: (model) => (
        <button type="button" className="link as-link wrap" onClick={() => setChosen(model)}>
          {visible(model.id)}
        </button>
      ),
    },
    {
      key: "engine",
      header: t("endpoint.engine"),
      sort: (model) => model.engine,
      cell: (model) => model.engine,
    },
    {
      key: "parameters",
      header: t("catalog.parameters"),
      right: true,
      sort: (model) => model.parameters,
      cell: (model) => count(model.parameters),
    },
    {
      key: "weights",
      header: t("catalog.weights"),
      right: true,
      sort: (model) => model.weight_bytes,
      cell: (model) => bytes(model.weight_bytes),
    },
    {
      key: "context",
      header: t("catalog.context"),
      right: true,
      wide: true,
      sort: (model) => model.context,
      cell: (model) => model.context,
    },
    {
      key: "fits",
      header: t("catalog.fits"),
      cell: (model) => model.fits[0] ?? t("catalog.manyNodes"),
    },
  ];
  return (
    <Page title={t("catalog.title")} lead={t("catalog.lead")}>
      <Section title={t("catalog.all")}>
        <Loaded query={models} height={300}>
          {(rows) => (
            <DataTable<Model>
              label={t("catalog.title")}
              rows={rows}
              id={(model) => model.id}
              columns={columns}
              view={view}
              searched={(model) => model.id}
              empty={<Empty title={t("catalog.empty")} />}
            />
          )}
        </Loaded>
      </Section>
      {chosen ? <Chosen model={chosen} close={() => setChosen(undefined)} /> : null}
    </Page>
  );
}

/** What the model needs, the agents of a group that it fits, and the way to the form. */
function Chosen({ model, close }: { model: Model; close: () => void }) {
  const navigate = useNavigate();
  const groups = useQuery(groupsQuery);
  const [group, setGroup] = useState("default");
  const [context, setContext] = useState<number | string>("");
  const tokens = Number(context) || 0;
  const fit = useQuery(fitQuery(model.id, group, tokens));
  const start = () =>
    void navigate({
      to: "/new-endpoint",
      search: { model: model.id, group, context: tokens || undefined } as never,
    });
  return (
    <Dialog title={visible(model.id)} size="lg" close={close}>
      <Stack gap="md">
        <Facts
          facts={[
            [t("endpoint.engine"), [model.engine, ...model.args].join(" ")],
            [t("catalog.parameters"), count(model.parameters)],
            [t("catalog.weights"), `${bytes(model.weight_bytes)}, ${model.quantization || model.dtype}`],
            [t("catalog.context"), model.context],
            [t("catalog.cache"), bytes(model.kv_cache_bytes_per_token)],
            [t("catalog.fits"), model.fits.join(", ") || t("catalog.manyNodes")],
          ]}
        />
        {model.needs_token ? <Text size="sm">{t("catalog.token")}</Text> : null}
        <div className="columns">
          <Select
            label={t("field.group")}
            data={groups.data?.map((one) => one.name) ?? [group]}
            value={group}
            allowDeselect={false}
            onChange={(value) => setGroup(value ?? "default")}
          />
          <NumberInput
            label={t("catalog.wanted")}
            description={t("catalog.wantedHelp")}
            min={1}
            max={model.context}
            allowDecimal={false}
            value={context}
            onChange={setContext}
          />
        </div>
        {fit.error ? <Problem error={fit.error} retry={() => void fit.refetch()} /> : null}
        {fit.data ? (
          <>
            <DataTable<Node>
              label={t("catalog.nodes")}
              rows={fit.data.nodes}
              id={(node) => node.agent_id}
              empty={<Text size="sm">{t("catalog.noNodes")}</Text>}
              columns={NODES}
            />
            {fit.data.problem ? (
              <Text size="sm" role="status" className="wrap">
                {visible(fit.data.problem)}. {visible(fit.data.next_step ?? "")}
              </Text>
            ) : null}
          </>
        ) : null}
        <Only may="change">
          <Group justify="flex-end">
            <Button onClick={start} disabled={!fit.data}>
              {t("catalog.deploy")}
            </Button>
          </Group>
        </Only>
      </Stack>
    </Dialog>
  );
}

const NODES: Column<Node>[] = [
  { key: "agent", header: t("field.agent"), cell: (node) => visible(node.agent_id) },
  { key: "fits", header: t("catalog.takes"), cell: (node) => t(node.fits ? "catalog.yes" : "catalog.no") },
  { key: "gpus", header: t("catalog.gpus"), right: true, cell: (node) => node.gpus || "–" },
  { key: "context", header: t("catalog.context"), right: true, cell: (node) => node.context || "–" },
];
