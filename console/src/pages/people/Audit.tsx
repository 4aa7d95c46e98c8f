import { Code } from "@mantine/core";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import { Opener } from "@/parts/actions";
import { type Column, DataTable, FilterBox } from "@/parts/DataTable";
import { Dialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { pageFilter, useFilter, useListView } from "@/parts/listView";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

type Entry = Schemas["AuditEntry"];
const FILTERS = ["actor", "resource", "action"] as const;

const whatOf = (entry: Entry) => visible(`${entry.resource} ${entry.name ?? ""}`);

const COLUMNS: Column<Entry>[] = [
  { key: "at", header: t("field.at"), order: "at", cell: (entry) => <Age at={entry.at} /> },
  { key: "actor", header: t("field.actor"), cell: (entry) => visible(entry.actor) },
  { key: "action", header: t("field.action"), cell: (entry) => visible(entry.action) },
  { key: "what", header: t("audit.what"), line: whatOf, cell: whatOf },
  { key: "status", header: t("audit.answer"), right: true, cell: (entry) => entry.status },
  { key: "from", header: t("audit.from"), wide: true, cell: (entry) => entry.from_address },
  { key: "change", header: t("audit.change"), cell: (entry) => <Change entry={entry} /> },
];

/** Every administrative write: its actor, its change and its origin. */
export function Audit() {
  const filters = { actor: useFilter("actor"), resource: useFilter("resource"), action: useFilter("action") };
  const view = useListView();
  const query = {
    ...pageFilter(view, COLUMNS),
    ...Object.fromEntries(FILTERS.flatMap((name) => (filters[name][0] ? [[name, filters[name][0]]] : []))),
  };
  const entries = useInfiniteQuery({
    queryKey: ["audit", query],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/v1/audit", { params: { query: { limit: 50, ...(query as object), cursor: pageParam } } }),
      ),
    placeholderData: keepPreviousData,
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const rows = entries.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page title={t("nav.audit")} lead={t("audit.lead")}>
      <Section title={t("audit.all")}>
        <Loaded query={entries as never}>
          {() => (
            <DataTable<Entry>
              label={t("nav.audit")}
              rows={rows}
              id={(entry) => String(entry.id)}
              empty={<Empty title={t("audit.empty")} />}
              columns={COLUMNS}
              view={view}
              remote
              filters={FILTERS.map((name) => (
                <FilterBox
                  key={name}
                  label={t(`audit.${name}`)}
                  value={filters[name][0]}
                  change={filters[name][1]}
                />
              ))}
              more={
                entries.hasNextPage
                  ? { load: () => void entries.fetchNextPage(), loading: entries.isFetchingNextPage }
                  : undefined
              }
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

function Change({ entry }: { entry: Entry }) {
  if (!entry.before && !entry.after) {
    return "–";
  }
  return (
    <Opener
      label={t("audit.show")}
      dialog={(close) => (
        <Dialog title={visible(`${entry.action} ${entry.name ?? ""}`)} size="xl" close={close}>
          <div className="columns">
            {(["before", "after"] as const).map((side) => (
              <div key={side}>
                <h3 className="part-title">{t(`audit.${side}`)}</h3>
                <Code block className="wrap">
                  {visible(JSON.stringify(entry[side] ?? null, null, 2))}
                </Code>
              </div>
            ))}
          </div>
        </Dialog>
      )}
    />
  );
}
