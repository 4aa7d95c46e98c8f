import { useQuery } from "@tanstack/react-query";
import { api, unwrap, type Workspace } from "@/api/client";
import { workspacesQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { bytes, visible } from "@/parts/format";
import { Page } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

/** Directories that sessions keep on their nodes. */
export function Workspaces() {
  const workspaces = useQuery(workspacesQuery);
  return (
    <Page title={t("nav.workspaces")} lead={t("workspaces.lead")}>
      <Loaded query={workspaces}>
        {({ items, silent = [] }) => (
          <>
            {silent.length > 0 ? (
              <div className="banner" role="status">
                {t("workspaces.silent", { agents: silent.map(visible).join(", ") })}
              </div>
            ) : null}
            <DataTable
              label={t("nav.workspaces")}
              rows={items}
              id={(row) => `${row.session_id} ${row.agent_id}`}
              empty={
                <Empty title={t("workspaces.empty")} command="moorage start --name dev --workspace keep" />
              }
              columns={[
                {
                  key: "session",
                  header: t("field.session"),
                  cell: (row) => visible(row.session || row.session_id),
                },
                { key: "agent", header: t("field.agent"), cell: (row) => visible(row.agent_id) },
                { key: "size", header: t("workspaces.size"), right: true, cell: (row) => bytes(row.size) },
                {
                  key: "changed",
                  header: t("workspaces.changed"),
                  cell: (row) => <Age at={row.changed_at} />,
                },
                {
                  key: "used",
                  header: t("workspaces.used"),
                  cell: (row) => (row.in_use ? t("workspaces.inUse") : t("workspaces.notInUse")),
                },
                { key: "action", header: t("field.action"), cell: (row) => <Delete row={row} /> },
              ]}
            />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Delete({ row }: { row: Workspace }) {
  const name = row.session || row.session_id;
  return (
    <Opener
      label={t("workspaces.delete")}
      danger
      disabled={row.in_use}
      reason={t("workspaces.inUseHelp")}
      dialog={(close) => (
        <Confirm
          title={t("workspaces.deleteTitle", { name })}
          consequences={[t("workspaces.deleteText")]}
          verb={t("workspaces.delete")}
          act={() =>
            unwrap(api.DELETE("/v1/workspaces/{ref}", { params: { path: { ref: row.session_id } } }))
          }
          done={t("workspaces.deleted", { name })}
          close={close}
        />
      )}
    />
  );
}
