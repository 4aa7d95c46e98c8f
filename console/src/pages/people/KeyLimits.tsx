import { Button, Group, MultiSelect, NumberInput, Stack, TagsInput, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { api, etagOf, type Key, type Schemas, unwrap } from "@/api/client";
import { Conflict } from "@/parts/Conflict";
import { Dialog, FormDialog } from "@/parts/FormDialog";
import { Command } from "@/parts/States";
import { t } from "@/texts";

type Limits = Schemas["KeyLimits"];
export const SCOPES = ["sessions:read", "sessions:write", "models:use", "admin"] as const;
const NUMBERS = [
  "max_priority",
  "requests_per_minute",
  "tokens_per_minute",
  "concurrent_requests",
  "max_body_bytes",
] as const;
const HOUR_S = 3600;

const limitsOf = (key: Key): Limits => ({
  scopes: (key.scopes ?? null) as Limits["scopes"],
  models: key.models ?? null,
  resource_groups: key.resource_groups ?? null,
  max_priority: key.max_priority ?? null,
  requests_per_minute: key.requests_per_minute ?? null,
  tokens_per_minute: key.tokens_per_minute ?? null,
  concurrent_requests: key.concurrent_requests ?? null,
  max_body_bytes: key.max_body_bytes ?? null,
  expires_at: key.expires_at ?? null,
});

const orNull = <T,>(values: T[]) => (values.length > 0 ? values : null);

/** A point in time as the input element for local times writes it. */
function localTime(iso: string | null | undefined): string {
  if (!iso) {
    return "";
  }
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Changes the restrictions and the expiry of a key. Its secret, user, project and role stay. */
export function KeyLimitsForm({ row, close }: { row: Key; close: () => void }) {
  const [base, setBase] = useState(row);
  const [limits, setLimits] = useState(limitsOf(row));
  const change = (given: Partial<Limits>) => setLimits((now) => ({ ...now, ...given }));
  const read = () => unwrap(api.GET("/v1/keys/{name}", { params: { path: { name: row.name } } }));
  const save = (etag = etagOf(base)) =>
    unwrap(
      api.PATCH("/v1/keys/{name}", {
        params: { path: { name: row.name } },
        headers: { "If-Match": etag },
        body: limits,
      }),
    );
  return (
    <FormDialog
      title={t("keys.editTitle", { name: row.name })}
      verb={t("action.save")}
      ready
      save={save}
      done={t("keys.saved", { name: row.name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={limitsOf(base)}
          mine={limits}
          latest={async () => {
            const key = await read();
            return { value: limitsOf(key), etag: etagOf(key), whole: key };
          }}
          reload={({ whole }) => {
            setBase(whole);
            setLimits(limitsOf(whole));
            reset();
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    >
      <MultiSelect
        label={t("keys.scopes")}
        description={t("keys.scopesHelp")}
        data={[...SCOPES]}
        value={limits.scopes ?? []}
        onChange={(scopes) => change({ scopes: orNull(scopes as NonNullable<Limits["scopes"]>) })}
      />
      <TagsInput
        label={t("keys.models")}
        description={t("keys.modelsHelp")}
        value={limits.models ?? []}
        onChange={(models) => change({ models: orNull(models) })}
      />
      <TagsInput
        label={t("nav.groups")}
        description={t("keys.groupsHelp")}
        value={limits.resource_groups ?? []}
        onChange={(groups) => change({ resource_groups: orNull(groups) })}
      />
      {NUMBERS.map((name) => (
        <NumberInput
          key={name}
          label={t(`keys.limits.${name}`)}
          description={t("keys.noLimitHelp")}
          min={0}
          allowDecimal={false}
          value={limits[name] ?? ""}
          onChange={(value) => change({ [name]: value === "" ? null : Number(value) })}
        />
      ))}
      <TextInput
        label={t("keys.expires")}
        description={t("keys.expiresHelp")}
        type="datetime-local"
        value={localTime(limits.expires_at)}
        onChange={(event) => {
          const at = Date.parse(event.currentTarget.value);
          change({ expires_at: Number.isNaN(at) ? null : new Date(at).toISOString() });
        }}
      />
    </FormDialog>
  );
}

/** Gives a key a new secret. The old one may stay valid for some hours. */
export function RotateKey({ row, close }: { row: Key; close: () => void }) {
  const [hours, setHours] = useState<string | number>(1);
  const [secret, setSecret] = useState("");
  const save = async () => {
    const rotated = await unwrap(
      api.POST("/v1/keys/{name}/rotate", {
        params: { path: { name: row.name } },
        body: { grace_s: Math.round(Number(hours) * HOUR_S) },
      }),
    );
    setSecret(rotated.secret);
  };
  const title = t("keys.rotateTitle", { name: row.name });
  if (secret) {
    return (
      <Dialog title={title} close={close}>
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
    <FormDialog title={title} verb={t("keys.rotate")} ready={Number(hours) >= 0} save={save} close={close}>
      <Text size="sm">{t("keys.rotateText")}</Text>
      <NumberInput
        label={t("keys.grace")}
        description={t("keys.graceHelp")}
        min={0}
        value={hours}
        onChange={setHours}
      />
    </FormDialog>
  );
}
