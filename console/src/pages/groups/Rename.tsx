import { Text, TextInput } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Group, unwrap } from "@/api/client";
import { Opener } from "@/parts/actions";
import { FormDialog } from "@/parts/FormDialog";
import { t } from "@/texts";

/** Gives a group another name. The former name keeps working. */
export function Rename({ group, etag }: { group: Group; etag: string }) {
  return (
    <Opener
      label={t("group.rename")}
      dialog={(close) => <RenameDialog group={group} etag={etag} close={close} />}
    />
  );
}

function RenameDialog({ group, etag, close }: { group: Group; etag: string; close: () => void }) {
  const [name, setName] = useState(group.name);
  const navigate = useNavigate();
  const save = async () => {
    await unwrap(
      api.PATCH("/v1/groups/{name}", {
        params: { path: { name: group.name } },
        headers: { "If-Match": etag },
        body: { name },
      }),
    );
    await navigate({ to: "/groups/$name", params: { name } });
  };
  return (
    <FormDialog
      title={t("group.renameTitle", { name: group.name })}
      verb={t("group.rename")}
      ready={name !== "" && name !== group.name}
      save={save}
      done={t("group.renamed", { former: group.name, name })}
      close={close}
    >
      <TextInput
        label={t("group.newName")}
        value={name}
        data-autofocus
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Text size="sm">{t("group.renameAlias", { name: group.name })}</Text>
    </FormDialog>
  );
}
