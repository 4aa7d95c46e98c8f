import {
  Autocomplete,
  Button,
  Checkbox,
  Group,
  MultiSelect,
  Select,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { usePlatformRole } from "@/api/auth";
import { api, type Key, type Schemas, unwrap } from "@/api/client";
import { keysQuery, projectsQuery, usersQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import type { BulkAction } from "@/parts/Bulk";
import { DataTable } from "@/parts/DataTable";
import { Dialog, FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { useListView } from "@/parts/listView";
import { Page, Section } from "@/parts/Page";
import { Command, Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { KeyLimitsForm, RotateKey, SCOPES } from "./KeyLimits";
import { SshKeys } from "./SshKeys";

type Spec = Schemas["KeySpec"];
const ROLES = ["viewer", "member", "project-admin", "auditor", "admin"] as const;

const BULK: BulkAction<Key>[] = [
  {
    key: "revoke",
    verb: t("bulk.revoke"),
    danger: true,
    applies: () => true,
    consequence: t("bulk.revokeKeys"),
    act: (key) => unwrap(api.DELETE("/v1/keys/{name}", { params: { path: { name: key.name } } })),
  },
];

export function Keys() {
  const keys = useQuery(keysQuery);
  const view = useListView();
  return (
    <Page
      title={t("nav.keys")}
      lead={t("keys.lead")}
      actions={
        <Opener label={t("keys.create")} variant="filled" dialog={(close) => <KeyForm close={close} />} />
      }
    >
      <Section title={t("keys.all")}>
        <Loaded query={keys}>
          {(rows) => (
            <DataTable
              label={t("nav.keys")}
              rows={rows}
              id={(key) => key.id}
              view={view}
              searched={(key) => key.name}
              nameOf={(key) => key.name}
              bulk={BULK}
              empty={<Empty title={t("keys.empty")} command="moorage keys create NAME" />}
              columns={[
                {
                  key: "name",
                  header: t("field.name"),
                  sort: (key) => key.name,
                  cell: (key) => visible(key.name),
                },
                {
                  key: "prefix",
                  header: t("keys.prefix"),
                  wide: true,
                  cell: (key) => <span className="mono">{key.prefix}…</span>,
                },
                {
                  key: "user",
                  header: t("field.user"),
                  sort: (key) => key.user,
                  cell: (key) => visible(key.user),
                },
                {
                  key: "project",
                  header: t("field.project"),
                  sort: (key) => key.project,
                  cell: (key) => visible(key.project),
                },
                { key: "role", header: t("users.role"), sort: (key) => key.role, cell: (key) => key.role },
                {
                  key: "scopes",
                  header: t("keys.scopes"),
                  wide: true,
                  cell: (key) => key.scopes?.join(", ") ?? t("keys.allScopes"),
                },
                {
                  key: "used",
                  header: t("keys.used"),
                  sort: (key) => key.last_used_at,
                  wide: true,
                  cell: (key) => <Age at={key.last_used_at} />,
                },
                {
                  key: "expires",
                  header: t("keys.expires"),
                  sort: (key) => key.expires_at,
                  cell: (key) => (key.expires_at ? <Age at={key.expires_at} /> : t("keys.never")),
                },
                {
                  key: "action",
                  header: t("field.action"),
                  cell: (key) => (
                    <span className="actions">
                      <Opener
                        label={t("action.edit")}
                        dialog={(close) => <KeyLimitsForm row={key} close={close} />}
                      />
                      <Opener
                        label={t("keys.rotate")}
                        dialog={(close) => <RotateKey row={key} close={close} />}
                      />
                      <Revoke row={key} />
                    </span>
                  ),
                },
              ]}
            />
          )}
        </Loaded>
      </Section>
      <SshKeys />
    </Page>
  );
}

function Revoke({ row }: { row: Key }) {
  return (
    <Opener
      label={t("keys.revoke")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("keys.revokeTitle", { name: row.name })}
          consequences={[
            t("keys.revokeNow", { user: row.user }),
            t("keys.revokeProxies"),
            t("keys.revokeKeeps"),
          ]}
          verb={t("keys.revoke")}
          act={() => unwrap(api.DELETE("/v1/keys/{name}", { params: { path: { name: row.name } } }))}
          done={t("keys.revoked", { name: row.name })}
          close={close}
        />
      )}
    />
  );
}

/** The name, if it was given and is not among those that exist. */
function missingOf(existing: { name: string }[] | undefined, name: string): string[] {
  return name && existing && !existing.some((one) => one.name === name) ? [name] : [];
}

function KeyForm({ close }: { close: () => void }) {
  const [name, setName] = useState("");
  const [user, setUser] = useState("");
  const [project, setProject] = useState("");
  const [role, setRole] = useState<Spec["role"]>(null);
  const [scopes, setScopes] = useState<string[]>([]);
  const [secret, setSecret] = useState("");
  const [creates, setCreates] = useState(false);
  const projects = useQuery(projectsQuery);
  // Members may not list users, and cannot create any either.
  const users = useQuery({ ...usersQuery, enabled: usePlatformRole() !== "" });
  // A user named like the key is created with it.
  const missing = [
    ...missingOf(projects.data, project.trim()),
    ...(user.trim() === name.trim() ? [] : missingOf(users.data, user.trim())),
  ];
  const save = async () => {
    const body = {
      name: name.trim(),
      user: user.trim() || null,
      project: project.trim() || null,
      role,
      scopes: scopes.length > 0 ? (scopes as Spec["scopes"]) : null,
      create_missing: missing.length > 0 && creates,
    };
    setSecret((await unwrap(api.POST("/v1/keys", { body }))).secret);
  };
  if (secret) {
    return (
      <Dialog title={t("keys.create")} close={close}>
        <Stack gap="md">
          <Text size="sm">{t("keys.once")}</Text>
          <Command line={secret} />
          <Group justify="flex-end">
            <Button onClick={close}>{t("keys.stored")}</Button>
          </Group>
        </Stack>
      </Dialog>
    );
  }
  return (
    <FormDialog
      title={t("keys.create")}
      verb={t("action.create")}
      ready={name.trim() !== "" && (missing.length === 0 || creates)}
      save={save}
      close={close}
    >
      <TextInput
        label={t("field.name")}
        description={t("keys.nameHelp")}
        required
        data-autofocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Autocomplete
        label={t("field.user")}
        description={t("keys.userHelp")}
        data={users.data?.map((one) => one.name) ?? []}
        limit={50}
        value={user}
        onChange={setUser}
      />
      <Autocomplete
        label={t("field.project")}
        data={projects.data?.map((one) => one.name) ?? []}
        limit={50}
        value={project}
        onChange={setProject}
      />
      {missing.length > 0 ? (
        <Checkbox
          label={t("keys.missing", { names: missing.map(visible).join(", ") })}
          description={t("keys.missingHelp")}
          checked={creates}
          onChange={(event) => setCreates(event.currentTarget.checked)}
        />
      ) : null}
      <Select
        label={t("users.role")}
        clearable
        data={[...ROLES]}
        value={role ?? null}
        onChange={(value) => setRole(value as Spec["role"])}
      />
      <MultiSelect
        label={t("keys.scopes")}
        description={t("keys.scopesHelp")}
        data={[...SCOPES]}
        value={scopes}
        onChange={setScopes}
      />
    </FormDialog>
  );
}
