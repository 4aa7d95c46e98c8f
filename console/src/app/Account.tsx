import { PasswordInput, Select, Stack, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { beginSession, type Who } from "@/api/auth";
import { api, unwrap } from "@/api/client";
import { useAction } from "@/parts/actions";
import { Dialog, FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

/** The signed-in user: its project and its password. A session signed in with a key has neither. */
export default function Account({ who, close }: { who: Who; close: () => void }) {
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const title = visible(who.user);
  if (who.key) {
    return (
      <Dialog title={title} close={close}>
        <Text size="sm">{t("account.ofKey", { key: visible(who.key), project: visible(who.project) })}</Text>
      </Dialog>
    );
  }
  return (
    <FormDialog
      title={title}
      verb={t("account.change")}
      ready={current !== "" && password !== ""}
      save={() => unwrap(api.PUT("/v1/session/password", { body: { current, password } }))}
      done={t("account.changed")}
      close={close}
    >
      <Projects who={who} />
      <Stack gap="xs">
        <PasswordInput
          label={t("account.current")}
          autoComplete="current-password"
          value={current}
          onChange={(event) => setCurrent(event.currentTarget.value)}
          visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
        />
        <PasswordInput
          label={t("account.new")}
          description={t("users.passwordHelp")}
          autoComplete="new-password"
          value={password}
          onChange={(event) => setPassword(event.currentTarget.value)}
          visibilityToggleButtonProps={{ "aria-label": t("signIn.show") }}
        />
      </Stack>
    </FormDialog>
  );
}

function Projects({ who }: { who: Who }) {
  const client = useQueryClient();
  const change = useAction(
    async (project: string) => {
      const next = await unwrap(api.PUT("/v1/session", { body: { project } }));
      // The other project's data must not be shown in this one.
      client.clear();
      beginSession(next);
    },
    () => t("account.switched"),
  );
  return (
    <>
      <Select
        label={t("field.project")}
        description={t("account.projectHelp")}
        allowDeselect={false}
        data={[...new Set([who.project, ...Object.keys(who.projects ?? {})])].sort()}
        value={who.project}
        onChange={(project) => project && change.mutate(project)}
      />
      {change.error ? <Problem error={change.error} /> : null}
    </>
  );
}
