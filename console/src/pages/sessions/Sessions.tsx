import { Button, MultiSelect, Select, TextInput } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import type { Session } from "@/api/client";
import { groupsQuery, sessionPage } from "@/api/queries";
import { type SessionType, STATUSES, shownStatus, TYPES } from "@/api/statuses";
import type { SessionSearch } from "@/app/router";
import { type Column, DataTable } from "@/parts/DataTable";
import { reasonText, slotsText, visible } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

const COLUMNS: Column<Session>[] = [
  {
    key: "name",
    header: t("field.session"),
    cell: (session) => (
      <Link to="/sessions/$ref" params={{ ref: session.id }} className="link">
        {visible(session.name)}
      </Link>
    ),
  },
  {
    key: "status",
    header: t("field.status"),
    cell: (session) => <StatusText status={shownStatus(session)} />,
  },
  { key: "type", header: t("field.type"), wide: true, cell: (session) => session.type },
  { key: "user", header: t("field.user"), wide: true, cell: (session) => visible(session.user ?? "") },
  {
    key: "project",
    header: t("field.project"),
    wide: true,
    cell: (session) => visible(session.project ?? ""),
  },
  { key: "group", header: t("field.group"), cell: (session) => session.resource_group },
  { key: "slots", header: t("field.requested"), cell: (session) => slotsText(session.slots) },
  { key: "created", header: t("field.created"), cell: (session) => <Age at={session.created_at} /> },
  {
    key: "note",
    header: t("field.note"),
    wide: true,
    cell: (session) => visible(session.hold?.text ?? (session.reason ? reasonText(session.reason) : "")),
  },
];

export function Sessions() {
  const search = useSearch({ from: "/sessions" });
  const filter = {
    status: search.status,
    resource_group: search.group,
    type: search.type,
    name: search.name,
    endpoint: search.endpoint,
  };
  const sessions = useInfiniteQuery({
    queryKey: ["sessions", "pages", filter],
    queryFn: ({ pageParam }) => sessionPage(filter, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    maxPages: 20,
  });
  const rows = sessions.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Page
      title={t("nav.sessions")}
      lead={t("sessions.lead")}
      actions={
        <Button size="xs" component={Link} to="/new-session">
          {t("sessions.create")}
        </Button>
      }
    >
      <Section title={t("sessions.all")}>
        <Filters search={search} />
        <Loaded query={sessions as never} height={300}>
          {() => (
            <DataTable
              label={t("nav.sessions")}
              rows={rows}
              id={(session) => session.id}
              columns={COLUMNS}
              empty={
                <Empty title={t("sessions.empty")} command="moorage run -- echo hello">
                  {t("sessions.emptyText")}
                </Empty>
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
  const [name, setName] = useState(search.name ?? "");
  const set = (change: Partial<SessionSearch>) =>
    void navigate({ search: { ...search, ...change }, replace: true });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    set({ name: name.trim() || undefined });
  };
  return (
    <form className="filters" onSubmit={submit}>
      <TextInput
        size="xs"
        label={t("sessions.name")}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        onBlur={() => set({ name: name.trim() || undefined })}
      />
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
    </form>
  );
}
