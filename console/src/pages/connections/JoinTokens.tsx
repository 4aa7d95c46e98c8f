import { Button, Group, NumberInput, Select, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { usePlatformRole } from "@/api/auth";
import { api, type JoinToken, unwrap } from "@/api/client";
import { serverNow } from "@/api/connection";
import { MANAGER } from "@/api/place";
import { groupsQuery, joinTokensQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { Dialog, FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Command, Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

type Kind = "agent" | "proxy";
const HOUR_MS = 3_600_000;

/** Tokens with which agents and proxies join. */
export function JoinTokens() {
  const tokens = useQuery(joinTokensQuery);
  const isAdmin = usePlatformRole() === "admin";
  return (
    <Section
      title={t("joinTokens.all")}
      actions={
        isAdmin ? (
          <Opener label={t("joinTokens.create")} dialog={(close) => <TokenForm close={close} />} />
        ) : null
      }
    >
      <Loaded query={tokens}>
        {(rows) => (
          <DataTable
            label={t("joinTokens.all")}
            rows={rows}
            id={(token) => token.id}
            empty={<Empty title={t("joinTokens.empty")} command="moorage join-tokens create" />}
            columns={[
              {
                key: "kind",
                header: t("connections.kind"),
                cell: (token) => t(`connections.${token.kind as Kind}`),
              },
              {
                key: "group",
                header: t("field.group"),
                cell: (token) => (token.resource_group ? visible(token.resource_group) : "–"),
              },
              {
                key: "uses",
                header: t("joinTokens.uses"),
                cell: (token) => t("usage.of", { used: token.used, capacity: token.uses }),
              },
              { key: "expires", header: t("keys.expires"), cell: (token) => <Age at={token.expires_at} /> },
              {
                key: "by",
                header: t("joinTokens.createdBy"),
                wide: true,
                cell: (token) => visible(token.created_by),
              },
              {
                key: "action",
                header: t("field.action"),
                cell: (token) => (isAdmin ? <Delete row={token} /> : null),
              },
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

function Delete({ row }: { row: JoinToken }) {
  return (
    <Opener
      label={t("joinTokens.delete")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("joinTokens.deleteTitle")}
          consequences={[t("joinTokens.deleteText")]}
          verb={t("joinTokens.delete")}
          act={() => unwrap(api.DELETE("/v1/join-tokens/{id}", { params: { path: { id: row.id } } }))}
          done={t("joinTokens.deleted")}
          close={close}
        />
      )}
    />
  );
}

function TokenForm({ close }: { close: () => void }) {
  const groups = useQuery(groupsQuery);
  const [kind, setKind] = useState<Kind>("agent");
  const [group, setGroup] = useState("default");
  const [uses, setUses] = useState<string | number>(1);
  const [hours, setHours] = useState<string | number>(1);
  const [secret, setSecret] = useState("");
  const save = async () => {
    const body = {
      kind,
      resource_group: kind === "agent" ? group : null,
      uses: Number(uses),
      expires_at: new Date(serverNow() + Number(hours) * HOUR_MS).toISOString(),
    };
    setSecret((await unwrap(api.POST("/v1/join-tokens", { body }))).secret);
  };
  if (secret) {
    return (
      <Dialog title={t("joinTokens.create")} size="lg" close={close}>
        <Stack gap="md">
          <Text size="sm">{t("joinTokens.once")}</Text>
          <Command line={`echo ${secret} | moorage ${kind} join ${MANAGER}`} />
          <Group justify="flex-end">
            <Button onClick={close}>{t("keys.stored")}</Button>
          </Group>
        </Stack>
      </Dialog>
    );
  }
  return (
    <FormDialog
      title={t("joinTokens.create")}
      verb={t("action.create")}
      ready={Number(uses) >= 1 && Number(hours) > 0}
      save={save}
      close={close}
    >
      <Select
        label={t("connections.kind")}
        allowDeselect={false}
        data={[
          { value: "agent", label: t("connections.agent") },
          { value: "proxy", label: t("connections.proxy") },
        ]}
        value={kind}
        onChange={(value) => setKind(value as Kind)}
      />
      {kind === "agent" ? (
        <Select
          label={t("field.group")}
          allowDeselect={false}
          data={groups.data?.map((one) => one.name) ?? ["default"]}
          value={group}
          onChange={(value) => setGroup(value ?? "default")}
        />
      ) : null}
      <NumberInput
        label={t("joinTokens.uses")}
        description={t("joinTokens.usesHelp")}
        required
        min={1}
        allowDecimal={false}
        value={uses}
        onChange={setUses}
      />
      <NumberInput label={t("joinTokens.hours")} required min={0} value={hours} onChange={setHours} />
    </FormDialog>
  );
}
