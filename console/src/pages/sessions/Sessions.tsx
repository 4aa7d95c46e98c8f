import { Button, MultiSelect, Select } from "@mantine/core";
import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMay } from "@/api/auth";
import { api, type Session, unwrap } from "@/api/client";
import { groupsQuery, type SessionFilter, sessionPage } from "@/api/queries";
import { isLive, type SessionType, STATUSES, shownStatus, TYPES } from "@/api/statuses";
import type { SessionSearch } from "@/app/router";
import type { BulkAction } from "@/parts/Bulk";
import { type Column, DataTable } from "@/parts/DataTable";
import { reasonText, slotsText, visible } from "@/parts/format";
import { pageFilter, useListView } from "@/parts/listView";
import { Only } from "@/parts/Only";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { VERBS } from "./Changes";
import { Marks } from "./Marks";

const noteOf = (session: Session) =>
  visible(session.hold?.text ?? (session.reason ? reasonText(session.reason) : ""));

const isFiltered = ({ sort: _, ...others }: SessionSearch) =>
  Object.values(others).some((value) => value !== undefined);

const path = (session: Session) => ({ params: { path: { ref: session.id } } });

const BULK: BulkAction<Session>[] = [
  {
    key: "stop",
    verb: t("bulk.stop"),
    danger: true,
    applies: (session) => isLive(session.status) && session.status !== "TERMINATING",
    consequence: t("bulk.stopSessions"),
    act: (session) => unwrap(api.POST("/v1/sessions/{ref}/stop", path(session))),
  },
  ...(["hold", "release", "requeue"] as const).map((verb) => ({
    key: verb,
    verb: t(`session.verb.${verb}`),
    applies: VERBS[verb].applies,
    consequence: t(`session.consequence.${verb}`),
    act: VERBS[verb].act,
  })),
  {
    key: "remove",
    verb: t("bulk.remove"),
    danger: true,
    applies: (session) => !isLive(session.status),
    consequence: t("bulk.removeSessions"),
    act: (session) => unwrap(api.DELETE("/v1/sessions/{ref}", path(session))),
  },
];

const COLUMNS: Column<Session>[] = [
  {
    key: "name",
    header: t("field.session"),
    order: "name",
    cell: (session) => (
      <Link to="/sessions/$ref" params={{ ref: session.id }} className="link">
        {visible(session.name)}
      </Link>
    ),
  },
  {
    key: "status",
    header: t("field.status"),
    order: "status",
    cell: (session) => (
      <>
        <StatusText status={shownStatus(session)} />
        <Marks session={session} />
      </>
    ),
  },
  { key: "type", header: t("field.type"), wide: 4, cell: (session) => session.type },
  {
    key: "user",
    header: t("field.user"),
    wide: 2,
    order: "user",
    cell: (session) => visible(session.user ?? ""),
  },
  {
    key: "project",
    header: t("field.project"),
    order: "project",
    wide: 3,
    cell: (session) => visible(session.project ?? ""),
  },
  {
    key: "group",
    header: t("field.group"),
    wide: 1,
    order: "resource_group",
    cell: (session) => session.resource_group,
  },
  { key: "slots", header: t("field.requested"), wide: 0.5, cell: (session) => slotsText(session.slots) },
  {
    key: "created",
    header: t("field.created"),
    order: "created_at",
    cell: (session) => <Age at={session.created_at} />,
  },
  {
    key: "note",
    header: t("field.note"),
    line: noteOf,
    cell: noteOf,
  },
];

export function Sessions() {
  const search = useSearch({ from: "/sessions" });
  const view = useListView();
  const mayChange = useMay("change");
  const filter: SessionFilter = {
    ...(pageFilter(view, COLUMNS) as Pick<SessionFilter, "search" | "sort">),
    status: search.status,
    resource_group: search.group,
    type: search.type,
    name: search.name,
    endpoint: search.endpoint,
  };
  // An array is one row of the pipelines, unless something is looked for.
  const folded = !isFiltered(search) && !filter.search;
  if (folded) {
    filter.elements = false;
  }
  const sessions = useInfiniteQuery({
    queryKey: ["sessions", "pages", filter],
    queryFn: ({ pageParam }) => sessionPage(filter, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    maxPages: 20,
    placeholderData: keepPreviousData,
  });
  const rows = sessions.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page
      title={t("nav.sessions")}
      lead={t("sessions.lead")}
      actions={
        <Only may="change">
          <Button size="xs" component={Link} to="/new-session">
            {t("sessions.create")}
          </Button>
        </Only>
      }
    >
      <Section title={t("sessions.all")}>
        {folded ? (
          <p className="dim">
            {t("sessions.folded")}{" "}
            <Link to="/pipelines" className="link">
              {t("nav.pipelines")}
            </Link>
          </p>
        ) : null}
        <Loaded query={sessions as never} height={300}>
          {() => (
            <DataTable
              label={t("nav.sessions")}
              rows={rows}
              id={(session) => session.id}
              columns={COLUMNS}
              view={view}
              remote
              filters={rows.length > 0 || isFiltered(search) ? <Filters search={search} /> : null}
              bulk={mayChange ? BULK : undefined}
              nameOf={(session) => session.name}
              empty={
                isFiltered(search) ? (
                  <Empty title={t("sessions.empty")}>{t("sessions.emptyText")}</Empty>
                ) : (
                  <Empty title={t("sessions.none")} command="moorage run -- echo hello">
                    {t("sessions.noneText")}
                  </Empty>
                )
              }
              more={
                sessions.hasNextPage
                  ? { load: () => void sessions.fetchNextPage(), loading: sessions.isFetchingNextPage }
                  : undefined
              }
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

function Filters({ search }: { search: SessionSearch }) {
  const navigate = useNavigate({ from: "/sessions" });
  const groups = useQuery(groupsQuery);
  const set = (change: Partial<SessionSearch>) =>
    void navigate({ search: { ...search, ...change }, replace: true });
  return (
    <>
      <MultiSelect
        size="xs"
        label={t("field.status")}
        clearable
        data={STATUSES.map((status) => ({ value: status, label: t(`status.${status}`) }))}
        value={search.status ?? []}
        onChange={(value) =>
          set({ status: value.length > 0 ? (value as SessionSearch["status"]) : undefined })
        }
      />
      <Select
        size="xs"
        label={t("field.group")}
        clearable
        data={groups.data?.map((group) => group.name) ?? []}
        value={search.group ?? null}
        onChange={(value) => set({ group: value ?? undefined })}
      />
      <Select
        size="xs"
        label={t("field.type")}
        clearable
        data={[...TYPES]}
        value={search.type ?? null}
        onChange={(value) => set({ type: (value ?? undefined) as SessionType | undefined })}
      />
    </>
  );
}
