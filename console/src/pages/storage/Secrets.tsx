import { PasswordInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Secret, unwrap } from "@/api/client";
import { secretsQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { Page } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

/** Values that sessions receive in variables. Nobody can read them back. */
export function Secrets() {
  const secrets = useQuery(secretsQuery);
  return (
    <Page
      title={t("nav.secrets")}
      lead={t("secrets.lead")}
      actions={
        <Opener
          label={t("secrets.create")}
          variant="filled"
          dialog={(close) => <SecretForm close={close} />}
        />
      }
    >
      <Loaded query={secrets}>
        {(rows) => (
          <DataTable
            label={t("nav.secrets")}
            rows={rows}
            id={(secret) => secret.name}
            empty={<Empty title={t("secrets.empty")} command="moorage secrets set NAME" />}
            columns={[
              { key: "name", header: t("field.name"), cell: (secret) => visible(secret.name) },
              { key: "project", header: t("field.project"), cell: (secret) => visible(secret.project) },
              {
                key: "changed",
                header: t("secrets.changed"),
                cell: (secret) => <Age at={secret.changed_at} />,
              },
              {
                key: "by",
                header: t("secrets.changedBy"),
                wide: true,
                cell: (secret) => visible(secret.changed_by),
              },
              {
                key: "action",
                header: t("field.action"),
                cell: (secret) => (
                  <span className="actions">
                    <Opener
                      label={t("secrets.replace")}
                      dialog={(close) => <SecretForm name={secret.name} close={close} />}
                    />
                    <Delete row={secret} />
                  </span>
                ),
              },
            ]}
          />
        )}
      </Loaded>
    </Page>
  );
}

function Delete({ row }: { row: Secret }) {
  return (
    <Opener
      label={t("secrets.delete")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("secrets.deleteTitle", { name: row.name })}
          consequences={[t("secrets.deleteRunning"), t("secrets.deleteNew")]}
          verb={t("secrets.delete")}
          act={() => unwrap(api.DELETE("/v1/secrets/{name}", { params: { path: { name: row.name } } }))}
          done={t("secrets.deleted", { name: row.name })}
          close={close}
        />
      )}
    />
  );
}

function SecretForm({ name: given, close }: { name?: string; close: () => void }) {
  const [name, setName] = useState(given ?? "");
  const [value, setValue] = useState("");
  const save = () =>
    unwrap(api.PUT("/v1/secrets/{name}", { params: { path: { name: name.trim() } }, body: { value } }));
  return (
    <FormDialog
      title={given === undefined ? t("secrets.create") : t("secrets.replaceTitle", { name: given })}
      verb={t("action.save")}
      ready={name.trim() !== "" && value !== ""}
      save={save}
      done={t("secrets.saved", { name })}
      close={close}
    >
      {given === undefined ? (
        <TextInput
          label={t("field.name")}
          required
          data-autofocus
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
      ) : null}
      <PasswordInput
        label={t("secrets.value")}
        description={t("secrets.valueHelp")}
        required
        autoComplete="off"
        value={value}
        onChange={(event) => setValue(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
