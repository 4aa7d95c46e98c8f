import { Button, Group, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, unwrap } from "@/api/client";
import { membersQuery } from "@/api/queries";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded, Problem } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { Archive } from "./Archive";
import { Delete } from "./Delete";
import { ProjectForm } from "./Projects";

const ROLES = ["viewer", "member", "admin"] as const;
type Role = (typeof ROLES)[number];

export function ProjectPage() {
  const { name } = useParams({ from: "/projects/$name" });
  const project = useQuery({
    queryKey: ["projects", name],
    queryFn: () => unwrap(api.GET("/v1/projects/{name}", { params: { path: { name } } })),
  });
  const members = useQuery(membersQuery(name));
  return (
    <Loaded query={project} page={visible(name)}>
      {(found) => (
        <Page
          title={visible(found.name)}
          lead={<StatusText status={found.archived_at ? "archived" : found.status} />}
          actions={
            <>
              <Link to="/quotas" className="link">
                {t("nav.quotas")}
              </Link>
              {found.archived_at ? null : (
                <Opener
                  label={t("action.edit")}
                  dialog={(close) => <ProjectForm base={found} close={close} />}
                />
              )}
              {found.name === "default" ? null : (
                <>
                  <Archive kind="projects" name={found.name} archived={Boolean(found.archived_at)} />
                  <Delete kind="projects" name={found.name} />
                </>
              )}
            </>
          }
        >
          <Section title={t("projects.limits")}>
            <Facts
              facts={[
                [t("nav.groups"), found.resource_groups?.join(", ") ?? t("projects.allGroups")],
                [t("projects.priority"), found.max_priority ?? t("projects.any")],
                [t("projects.rpm"), found.requests_per_minute ?? t("projects.unlimited")],
                [t("projects.tpm"), found.tokens_per_minute ?? t("projects.unlimited")],
                [t("projects.concurrent"), found.concurrent_requests ?? t("projects.unlimited")],
                [t("field.created"), <Age key="created" at={found.created_at} />],
              ]}
            />
          </Section>
          <Section title={t("projects.members")}>
            <AddMember project={name} />
            <Loaded query={members}>
              {(rows) => (
                <DataTable
                  label={t("projects.members")}
                  rows={rows}
                  id={(member) => member.user}
                  empty={<Empty title={t("projects.noMembers")} />}
                  columns={[
                    { key: "user", header: t("field.user"), cell: (member) => visible(member.user) },
                    { key: "role", header: t("users.role"), cell: (member) => member.role },
                    {
                      key: "since",
                      header: t("session.since"),
                      wide: true,
                      cell: (member) => <Age at={member.changed_at} />,
                    },
                    {
                      key: "action",
                      header: t("field.action"),
                      cell: (member) => <RemoveMember project={name} user={member.user} />,
                    },
                  ]}
                />
              )}
            </Loaded>
          </Section>
        </Page>
      )}
    </Loaded>
  );
}

function AddMember({ project }: { project: string }) {
  const [user, setUser] = useState("");
  const [role, setRole] = useState<Role>("member");
  const add = useAction(
    () =>
      unwrap(
        api.PUT("/v1/projects/{name}/members/{user}", {
          params: { path: { name: project, user: user.trim() } },
          body: { role },
        }),
      ),
    (member) => t("projects.memberAdded", { user: member.user }),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    add.mutate(undefined, { onSuccess: () => setUser("") });
  };
  return (
    <form onSubmit={submit}>
      <Group align="flex-end" gap="xs" mb="md">
        <TextInput
          size="xs"
          label={t("field.user")}
          value={user}
          onChange={(event) => setUser(event.currentTarget.value)}
        />
        <Select
          size="xs"
          label={t("users.role")}
          allowDeselect={false}
          data={[...ROLES]}
          value={role}
          onChange={(value) => setRole(value as Role)}
        />
        <Button
          size="xs"
          type="submit"
          variant="default"
          loading={add.isPending}
          disabled={user.trim() === ""}
        >
          {t("projects.addMember")}
        </Button>
      </Group>
      {add.error ? <Problem error={add.error} /> : null}
    </form>
  );
}

function RemoveMember({ project, user }: { project: string; user: string }) {
  return (
    <Opener
      label={t("projects.removeMember")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("projects.removeTitle", { user, project })}
          consequences={[t("projects.removeKeys"), t("users.disableKeeps")]}
          verb={t("projects.removeMember")}
          act={() =>
            unwrap(
              api.DELETE("/v1/projects/{name}/members/{user}", { params: { path: { name: project, user } } }),
            )
          }
          done={t("projects.removed", { user })}
          close={close}
        />
      )}
    />
  );
}
