import { Group, PasswordInput, Select, Switch, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useMay } from "@/api/auth";
import { api, etagOf, type User, unwrap } from "@/api/client";
import { allUsersQuery, usersQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
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
import { Archive, archiveOwner, restoreOwner } from "./Archive";
import { Delete, deleteOwner } from "./Delete";

type Role = NonNullable<User["platform_role"]>;

const projectsOf = (user: User) =>
  Object.entries(user.projects ?? {})
    .map(([project, role]) => `${project} (${role})`)
    .join(", ");

const setStatus = (user: User, status: User["status"]) =>
  unwrap(
    api.PATCH("/v1/users/{name}", {
      params: { path: { name: user.name } },
      body: { status },
      headers: { "If-Match": etagOf(user) },
    }),
  );

const BULK: BulkAction<User>[] = [
  {
    key: "disable",
    verb: t("bulk.disable"),
    danger: true,
    applies: (user) => user.status === "active" && !user.archived_at,
    consequence: t("bulk.disableUsers"),
    act: (user) => setStatus(user, "disabled"),
  },
  {
    key: "enable",
    verb: t("bulk.enable"),
    applies: (user) => user.status === "disabled" && !user.archived_at,
    consequence: t("bulk.enableUsers"),
    act: (user) => setStatus(user, "active"),
  },
  {
    key: "archive",
    verb: t("bulk.archive"),
    danger: true,
    applies: (user) => !user.archived_at,
    consequence: t("bulk.archiveOwners"),
    act: ({ name }) => archiveOwner({ kind: "users", name }),
  },
  {
    key: "restore",
    verb: t("bulk.restore"),
    applies: (user) => Boolean(user.archived_at),
    consequence: t("bulk.restoreOwners"),
    act: ({ name }) => restoreOwner({ kind: "users", name }),
  },
  {
    key: "delete",
    verb: t("bulk.delete"),
    danger: true,
    applies: () => true,
    consequence: t("bulk.deleteOwners"),
    act: ({ name }) => deleteOwner({ kind: "users", name }),
  },
];

export function Users() {
  const [all, setAll] = useFlag("archived");
  const administers = useMay("administer");
  const view = useListView();
  const users = useQuery(all ? allUsersQuery : usersQuery);
  return (
    <Page
      title={t("nav.users")}
      lead={t("users.lead")}
      actions={
        <Only may="administer">
          <Opener label={t("users.create")} variant="filled" dialog={(close) => <UserForm close={close} />} />
        </Only>
      }
    >
      <Section title={t("users.all")}>
        <Switch
          size="xs"
          mb="md"
          label={t("archive.show")}
          checked={all}
          onChange={(event) => setAll(event.currentTarget.checked)}
        />
        <Loaded query={users}>
          {(rows) => (
            <DataTable
              label={t("nav.users")}
              rows={rows}
              id={(user) => user.id}
              view={view}
              searched={(user) => `${user.name} ${user.email}`}
              nameOf={(user) => user.name}
              bulk={administers ? BULK : undefined}
              empty={<Empty title={t("users.empty")} command="moorage users create NAME" />}
              columns={[
                {
                  key: "name",
                  header: t("field.name"),
                  sort: (user) => user.name,
                  cell: (user) => visible(user.name),
                },
                {
                  key: "email",
                  header: t("users.email"),
                  wide: true,
                  sort: (user) => user.email,
                  cell: (user) => user.email || "–",
                },
                {
                  key: "status",
                  header: t("field.status"),
                  sort: (user) => (user.archived_at ? "archived" : user.status),
                  cell: (user) => <StatusText status={user.archived_at ? "archived" : user.status} />,
                },
                {
                  key: "role",
                  header: t("users.role"),
                  sort: (user) => user.platform_role,
                  cell: (user) => user.platform_role ?? t("users.noRole"),
                },
                {
                  key: "projects",
                  header: t("nav.projects"),
                  line: projectsOf,
                  cell: (user) => projectsOf(user) || "–",
                },
                {
                  key: "created",
                  header: t("field.created"),
                  sort: (user) => user.created_at,
                  wide: true,
                  cell: (user) => <Age at={user.created_at} />,
                },
                {
                  key: "action",
                  header: t("field.action"),
                  cell: (user) => (
                    <Only may="administer">
                      <Actions user={user} />
                    </Only>
                  ),
                },
              ]}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

function Actions({ user }: { user: User }) {
  const archive = <Archive kind="users" name={user.name} archived={Boolean(user.archived_at)} />;
  const remove = <Delete kind="users" name={user.name} />;
  if (user.archived_at) {
    return (
      <Group gap={6} className="row-actions">
        {archive}
        {remove}
      </Group>
    );
  }
  return (
    <Group gap={6} className="row-actions">
      <Opener label={t("action.edit")} dialog={(close) => <UserForm base={user} close={close} />} />
      <Opener label={t("users.password")} dialog={(close) => <PasswordForm user={user} close={close} />} />
      {user.status === "active" ? <Disable user={user} /> : null}
      {archive}
      {remove}
    </Group>
  );
}

function Disable({ user }: { user: User }) {
  return (
    <Opener
      label={t("users.disable")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("users.disableTitle", { name: user.name })}
          consequences={[t("users.disableKeys"), t("users.disableKeeps")]}
          verb={t("users.disable")}
          act={() =>
            unwrap(
              api.PATCH("/v1/users/{name}", {
                params: { path: { name: user.name } },
                body: { status: "disabled" } as never,
              }),
            )
          }
          done={t("users.disabled", { name: user.name })}
          close={close}
        />
      )}
    />
  );
}

function PasswordForm({ user, close }: { user: User; close: () => void }) {
  const [password, setPassword] = useState("");
  return (
    <Confirm
      title={t("users.passwordTitle", { name: user.name })}
      consequences={[t("users.passwordEnds"), t("users.passwordTell")]}
      verb={t("users.password")}
      act={() =>
        unwrap(
          api.PUT("/v1/users/{name}/password", { params: { path: { name: user.name } }, body: { password } }),
        )
      }
      done={t("users.passwordSet", { name: user.name })}
      close={close}
    >
      <PasswordInput
        label={t("signIn.password")}
        description={t("users.passwordHelp")}
        autoComplete="new-password"
        value={password}
        onChange={(event) => setPassword(event.currentTarget.value)}
        visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
      />
    </Confirm>
  );
}

const readUser = (name: string) => unwrap(api.GET("/v1/users/{name}", { params: { path: { name } } }));

function UserForm({ base: given, close }: { base?: User; close: () => void }) {
  const [base, setBase] = useState(given);
  const [name, setName] = useState(base?.name ?? "");
  const [email, setEmail] = useState(base?.email ?? "");
  const [role, setRole] = useState<Role | null>(base?.platform_role ?? null);
  const [status, setStatus] = useState(base?.status ?? "active");
  const patch = { email: email.trim(), platform_role: role, status };
  const edited = ({ email, platform_role, status }: User) => ({ email, platform_role, status });
  const save = (etag = etagOf(base)) => {
    return base
      ? unwrap(
          api.PATCH("/v1/users/{name}", {
            params: { path: { name } },
            body: patch,
            headers: { "If-Match": etag },
          }),
        )
      : unwrap(api.POST("/v1/users", { body: { name: name.trim(), ...patch } }));
  };
  return (
    <FormDialog
      title={base ? t("users.edit", { name }) : t("users.create")}
      verb={base ? t("action.save") : t("action.create")}
      ready={name.trim() !== ""}
      save={save}
      done={t(base ? "users.saved" : "users.created", { name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={base ? edited(base) : {}}
          mine={patch}
          latest={async () => {
            const user = await readUser(name);
            return { value: edited(user), etag: etagOf(user), whole: user };
          }}
          reload={({ whole }) => {
            setBase(whole);
            setEmail(whole.email);
            setRole(whole.platform_role ?? null);
            setStatus(whole.status);
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
      <TextInput
        label={t("users.email")}
        type="email"
        value={email}
        onChange={(event) => setEmail(event.currentTarget.value)}
      />
      <Select
        label={t("users.role")}
        description={t("users.roleHelp")}
        clearable
        data={["admin", "auditor"]}
        placeholder={t("users.noRole")}
        value={role}
        onChange={(value) => setRole(value as Role | null)}
      />
      {base ? (
        <Select
          label={t("field.status")}
          allowDeselect={false}
          data={["active", "disabled"]}
          value={status}
          onChange={(value) => setStatus(value as User["status"])}
        />
      ) : null}
    </FormDialog>
  );
}
