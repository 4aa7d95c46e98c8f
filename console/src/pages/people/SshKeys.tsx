import { Text, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type SshKey, unwrap } from "@/api/client";
import { sshChallengeQuery, sshKeysQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Command, Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

/** Public keys with which users log in over SSH. */
export function SshKeys() {
  const keys = useQuery(sshKeysQuery);
  return (
    <Section
      title={t("sshKeys.all")}
      actions={<Opener label={t("sshKeys.add")} dialog={(close) => <SshKeyForm close={close} />} />}
    >
      <Loaded query={keys}>
        {(rows) => (
          <DataTable
            label={t("sshKeys.all")}
            rows={rows}
            id={(key) => key.fingerprint}
            empty={<Empty title={t("sshKeys.empty")} command="moorage keys add-ssh ~/.ssh/id_ed25519.pub" />}
            columns={[
              { key: "name", header: t("field.name"), cell: (key) => visible(key.name) },
              { key: "user", header: t("field.user"), cell: (key) => visible(key.user) },
              {
                key: "fingerprint",
                header: t("sshKeys.fingerprint"),
                wide: true,
                cell: (key) => <span className="mono">{key.fingerprint}</span>,
              },
              {
                key: "acts",
                header: t("sshKeys.actsAs"),
                cell: (key) =>
                  key.key ? t("sshKeys.asKey", { key: visible(key.key) }) : t("sshKeys.asUser"),
              },
              {
                key: "used",
                header: t("keys.used"),
                wide: true,
                cell: (key) => <Age at={key.last_used_at} />,
              },
              { key: "action", header: t("field.action"), cell: (key) => <Remove row={key} /> },
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

function Remove({ row }: { row: SshKey }) {
  const name = row.fingerprint;
  return (
    <Opener
      label={t("sshKeys.remove")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("sshKeys.removeTitle", { name: row.name })}
          consequences={[t("sshKeys.removeNow")]}
          verb={t("sshKeys.remove")}
          act={() => unwrap(api.DELETE("/v1/ssh-keys/{name}", { params: { path: { name } } }))}
          done={t("sshKeys.removed", { name: row.name })}
          close={close}
        />
      )}
    />
  );
}

/** Asks for a signed challenge, which proves that the user has the private key. */
function SshKeyForm({ close }: { close: () => void }) {
  const challenge = useQuery(sshChallengeQuery);
  const [key, setKey] = useState("");
  const [name, setName] = useState("");
  const [signature, setSignature] = useState("");
  const given = challenge.data;
  const save = () =>
    unwrap(
      api.POST("/v1/ssh-keys", {
        body: {
          public_key: key.trim(),
          name: name.trim() || null,
          challenge: given?.challenge ?? null,
          signature: signature.trim(),
        },
      }),
    );
  return (
    <FormDialog
      title={t("sshKeys.add")}
      size="lg"
      verb={t("sshKeys.add")}
      ready={given !== undefined && key.trim() !== "" && signature.trim() !== ""}
      save={save}
      done={t("sshKeys.added")}
      close={close}
    >
      <Textarea
        label={t("sshKeys.publicKey")}
        description={t("sshKeys.publicKeyHelp")}
        required
        data-autofocus
        value={key}
        onChange={(event) => setKey(event.currentTarget.value)}
      />
      <TextInput
        label={t("field.name")}
        description={t("sshKeys.nameHelp")}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Text size="sm">{t("sshKeys.proof")}</Text>
      <Loaded query={challenge}>
        {(one) => (
          <Command
            line={`printf %s '${one.challenge}' | ssh-keygen -q -Y sign -n ${one.namespace} -f ~/.ssh/id_ed25519.pub`}
          />
        )}
      </Loaded>
      <Textarea
        label={t("sshKeys.signature")}
        description={t("sshKeys.signatureHelp")}
        required
        minRows={4}
        autosize
        value={signature}
        onChange={(event) => setSignature(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
