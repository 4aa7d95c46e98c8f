import { MultiSelect, NumberInput, Select, Switch, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { useMay } from "@/api/auth";
import { api, etagOf, type Project, unwrap } from "@/api/client";
import { allProjectsQuery, groupsQuery, projectsQuery } from "@/api/queries";
import { Opener } from "@/parts/actions";
import type { BulkAction } from "@/parts/Bulk";
import { Conflict } from "@/parts/Conflict";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { useFlag, useListView } from "@/parts/listView";
import { Only } from "@/parts/Only";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { archiveOwner, restoreOwner } from "./Archive";
import { deleteOwner } from "./Delete";

const BULK: BulkAction<Project>[] = [
  {
    key: "archive",
    verb: t("bulk.archive"),
    danger: true,
    applies: (project) => !project.archived_at && project.name !== "default",
    consequence: t("bulk.archiveOwners"),
    act: ({ name }) => archiveOwner({ kind: "projects", name }),
  },
  {
    key: "restore",
    verb: t("bulk.restore"),
    applies: (project) => Boolean(project.archived_at),
    consequence: t("bulk.restoreOwners"),
    act: ({ name }) => restoreOwner({ kind: "projects", name }),
  },
  {
    key: "delete",
    verb: t("bulk.delete"),
    danger: true,
    applies: (project) => project.name !== "default",
    consequence: t("bulk.deleteOwners"),
    act: ({ name }) => deleteOwner({ kind: "projects", name }),
  },
];

export function Projects() {
  const [all, setAll] = useFlag("archived");
  const administers = useMay("administer");
  const view = useListView();
  const projects = useQuery(all ? allProjectsQuery : projectsQuery);
  return (
    <Page
      title={t("nav.projects")}
      lead={t("projects.lead")}
      actions={
        <Only may="administer">
          <Opener
            label={t("projects.create")}
            variant="filled"
            dialog={(close) => <ProjectForm close={close} />}
          />
        </Only>
      }
    >
      <Section title={t("projects.all")}>
        <Switch
          size="xs"
          mb="md"
          label={t("archive.show")}
          checked={all}
          onChange={(event) => setAll(event.currentTarget.checked)}
        />
        <Loaded query={projects}>
          {(rows) => (
            <DataTable
              label={t("nav.projects")}
              rows={rows}
              id={(project) => project.id}
              view={view}
              searched={(project) => project.name}
              nameOf={(project) => project.name}
              bulk={administers ? BULK : undefined}
              empty={<Empty title={t("projects.empty")} command="moorage projects create NAME" />}
              columns={[
                {
                  key: "name",
                  header: t("field.name"),
                  sort: (project) => project.name,
                  cell: (project) => (
                    <Link to="/projects/$name" params={{ name: project.name }} className="link">
                      {visible(project.name)}
                    </Link>
                  ),
                },
                {
                  key: "status",
                  header: t("field.status"),
                  sort: (project) => (project.archived_at ? "archived" : project.status),
                  cell: (project) => (
                    <StatusText status={project.archived_at ? "archived" : project.status} />
                  ),
                },
                {
                  key: "members",
                  header: t("projects.members"),
                  sort: (project) => project.members,
                  right: true,
                  cell: (project) => project.members,
                },
                {
                  key: "groups",
                  header: t("nav.groups"),
                  line: (project) => project.resource_groups?.join(", ") ?? "",
                  cell: (project) => project.resource_groups?.join(", ") ?? t("projects.allGroups"),
                },
                {
                  key: "created",
                  header: t("field.created"),
                  sort: (project) => project.created_at,
                  wide: true,
                  cell: (project) => <Age at={project.created_at} />,
                },
              ]}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

const readProject = (name: string) => unwrap(api.GET("/v1/projects/{name}", { params: { path: { name } } }));

export function ProjectForm({ base: given, close }: { base?: Project; close: () => void }) {
  const [base, setBase] = useState(given);
  const groups = useQuery(groupsQuery);
  const [name, setName] = useState(base?.name ?? "");
  const [status, setStatus] = useState(base?.status ?? "active");
  const [allowed, setAllowed] = useState<string[]>(base?.resource_groups ?? []);
  const [priority, setPriority] = useState<number | null>(base?.max_priority ?? null);
  const patch = { status, resource_groups: allowed.length > 0 ? allowed : null, max_priority: priority };
  const edited = ({ status, resource_groups, max_priority }: Project) => ({
    status,
    resource_groups,
    max_priority,
  });
  const save = (etag = etagOf(base)) => {
    return base
      ? unwrap(
          api.PATCH("/v1/projects/{name}", {
            params: { path: { name } },
            body: patch,
            headers: { "If-Match": etag },
          }),
        )
      : unwrap(api.POST("/v1/projects", { body: { name: name.trim(), ...patch } }));
  };
  return (
    <FormDialog
      title={base ? t("projects.edit", { name }) : t("projects.create")}
      verb={base ? t("action.save") : t("action.create")}
      ready={name.trim() !== ""}
      save={save}
      done={t(base ? "projects.saved" : "projects.created", { name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={base ? edited(base) : {}}
          mine={patch}
          latest={async () => {
            const project = await readProject(name);
            return { value: edited(project), etag: etagOf(project), whole: project };
          }}
          reload={({ whole }) => {
            setBase(whole);
            setStatus(whole.status);
            setAllowed(whole.resource_groups ?? []);
            setPriority(whole.max_priority ?? null);
            reset();
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    >
      {base ? null : (
        <TextInput
          label={t("field.name")}
          required
          data-autofocus
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
      )}
      <MultiSelect
        label={t("nav.groups")}
        description={t("projects.groupsHelp")}
        data={groups.data?.map((group) => group.name) ?? []}
        value={allowed}
        onChange={setAllowed}
      />
      <NumberInput
        label={t("projects.priority")}
        description={t("projects.priorityHelp")}
        min={0}
        max={100}
        value={priority ?? ""}
        onChange={(value) => setPriority(value === "" ? null : Number(value))}
      />
      {base ? (
        <Select
          label={t("field.status")}
          allowDeselect={false}
          data={["active", "disabled"]}
          value={status}
          onChange={(value) => setStatus(value as Project["status"])}
        />
      ) : null}
    </FormDialog>
  );
}
