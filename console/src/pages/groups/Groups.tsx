import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMay } from "@/api/auth";
import { api, etagOf, type Group, unwrap } from "@/api/client";
import { groupsQuery } from "@/api/queries";
import { Opener } from "@/parts/actions";
import type { BulkAction } from "@/parts/Bulk";
import { DataTable } from "@/parts/DataTable";
import { number } from "@/parts/format";
import { useListView } from "@/parts/listView";
import { Only } from "@/parts/Only";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { GroupForm } from "./GroupForm";

const BULK: BulkAction<Group>[] = [
  {
    key: "retire",
    verb: t("bulk.retire"),
    danger: true,
    applies: (group) => !group.retired_at,
    consequence: t("bulk.retireGroups"),
    act: (group) =>
      unwrap(
        api.DELETE("/v1/groups/{name}", {
          params: { path: { name: group.name } },
          headers: { "If-Match": etagOf(group) },
        }),
      ),
  },
];

export function Groups() {
  const administers = useMay("administer");
  const groups = useQuery(groupsQuery);
  const view = useListView();
  return (
    <Page
      title={t("nav.groups")}
      lead={t("groups.lead")}
      actions={
        <Only may="administer">
          <Opener
            label={t("groups.create")}
            variant="filled"
            dialog={(close) => <GroupForm close={close} />}
          />
        </Only>
      }
    >
      <Section title={t("groups.all")}>
        <Loaded query={groups}>
          {(rows) => (
            <DataTable
              label={t("nav.groups")}
              rows={rows}
              id={(group) => group.name}
              view={view}
              searched={(group) => group.name}
              bulk={administers ? BULK : undefined}
              empty={<Empty title={t("groups.empty")} command="moorage groups create NAME" />}
              columns={[
                {
                  key: "name",
                  header: t("field.name"),
                  sort: (group) => group.name,
                  cell: (group) => (
                    <Link to="/groups/$name" params={{ name: group.name }} className="link">
                      {group.name}
                    </Link>
                  ),
                },
                {
                  key: "order",
                  header: t("group.strategy"),
                  sort: (group) => group.options.strategy,
                  cell: (group) => `${group.options.strategy}, ${group.options.hol}`,
                },
                {
                  key: "selection",
                  header: t("group.selection"),
                  sort: (group) => group.options.agent_selection,
                  wide: true,
                  cell: (group) => group.options.agent_selection,
                },
                {
                  key: "agents",
                  header: t("nav.agents"),
                  right: true,
                  sort: (group) => group.agents,
                  cell: (group) => number(group.agents),
                },
                {
                  key: "running",
                  header: t("groups.placed"),
                  right: true,
                  sort: (group) => group.running,
                  cell: (group) => number(group.running),
                },
                {
                  key: "pending",
                  header: t("field.waiting"),
                  right: true,
                  sort: (group) => group.pending,
                  cell: (group) => number(group.pending),
                },
              ]}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
