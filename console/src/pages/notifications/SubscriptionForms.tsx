import { Button, Checkbox, Group, MultiSelect, Select, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { api, type Schemas, type Subscription, unwrap } from "@/api/client";
import { Dialog, FormDialog } from "@/parts/FormDialog";
import { Command } from "@/parts/States";
import { t } from "@/texts";

type Spec = Schemas["SubscriptionSpec"];
type Event = Subscription["events"][number];
const EVENTS: Event[] = [
  "session.started",
  "session.ended",
  "session.failed",
  "session.time-limit",
  "session.waiting",
  "pipeline.ended",
  "pipeline.failed",
  "budget.warning",
  "budget.exhausted",
  "endpoint.degraded",
  "node.lost",
];
const KINDS = ["mail", "json", "slack", "discord"] as const;

/** What is reported. A target cannot change: its secret belongs to it. */
function useFilters(row?: Subscription) {
  const [events, setEvents] = useState<Event[]>(row?.events ?? ["session.ended", "session.failed"]);
  const [own, setOwn] = useState(row?.own ?? true);
  const [selector, setSelector] = useState(row?.selector ?? "");
  const [name, setName] = useState(row?.session_name ?? "");
  const fields = (
    <>
      <MultiSelect
        label={t("notifications.events")}
        description={t("notifications.eventsHelp")}
        data={EVENTS}
        value={events}
        onChange={(chosen) => setEvents(chosen as Event[])}
      />
      <Checkbox
        label={t("notifications.own")}
        checked={own}
        onChange={(event) => setOwn(event.currentTarget.checked)}
      />
      <TextInput
        label={t("notifications.selector")}
        description={t("notifications.selectorHelp")}
        value={selector}
        onChange={(event) => setSelector(event.currentTarget.value)}
      />
      <TextInput
        label={t("notifications.sessionName")}
        description={t("notifications.sessionNameHelp")}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
    </>
  );
  return { fields, body: { events, own, selector: selector.trim(), session_name: name.trim() } };
}

export function NewSubscription({ close }: { close: () => void }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState<(typeof KINDS)[number]>("mail");
  const [target, setTarget] = useState("");
  const [secret, setSecret] = useState("");
  const filters = useFilters();
  const mail = kind === "mail";
  const save = async () => {
    const body = {
      ...filters.body,
      name: name.trim(),
      channel: mail ? "mail" : "webhook",
      format: mail ? "json" : kind,
      target: target.trim(),
    } as Spec;
    setSecret((await unwrap(api.POST("/v1/subscriptions", { body }))).secret ?? "");
  };
  if (secret) {
    return <ShownOnce title={t("notifications.create")} secret={secret} close={close} />;
  }
  return (
    <FormDialog
      title={t("notifications.create")}
      verb={t("action.create")}
      ready={name.trim() !== "" && (mail || target.trim() !== "")}
      save={save}
      close={close}
    >
      <TextInput
        label={t("field.name")}
        required
        data-autofocus
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Select
        label={t("notifications.kind")}
        allowDeselect={false}
        data={KINDS.map((one) => ({ value: one, label: t(`notifications.kinds.${one}`) }))}
        value={kind}
        onChange={(chosen) => setKind(chosen as (typeof KINDS)[number])}
      />
      <TextInput
        label={mail ? t("notifications.address") : t("notifications.url")}
        description={mail ? t("notifications.addressHelp") : t("notifications.urlHelp")}
        required={!mail}
        value={target}
        onChange={(event) => setTarget(event.currentTarget.value)}
      />
      {filters.fields}
    </FormDialog>
  );
}

export function SubscriptionForm({ row, close }: { row: Subscription; close: () => void }) {
  const [enabled, setEnabled] = useState(row.enabled);
  const filters = useFilters(row);
  const save = () =>
    unwrap(
      api.PATCH("/v1/subscriptions/{id}", {
        params: { path: { id: row.id }, header: { "If-Match": `"${row.version}"` } },
        body: { ...filters.body, enabled } as Schemas["SubscriptionPatch"],
      }),
    );
  return (
    <FormDialog
      title={t("notifications.editTitle", { name: row.name })}
      verb={t("action.save")}
      ready
      save={save}
      done={t("notifications.saved", { name: row.name })}
      close={close}
    >
      <Checkbox
        label={t("notifications.enabled")}
        checked={enabled}
        onChange={(event) => setEnabled(event.currentTarget.checked)}
      />
      {filters.fields}
    </FormDialog>
  );
}

export function Rotate({ row, close }: { row: Subscription; close: () => void }) {
  const [secret, setSecret] = useState("");
  const title = t("notifications.rotateTitle", { name: row.name });
  const save = async () => {
    const made = await unwrap(
      api.POST("/v1/subscriptions/{id}/rotate", { params: { path: { id: row.id } } }),
    );
    setSecret(made.secret ?? "");
  };
  if (secret) {
    return <ShownOnce title={title} secret={secret} close={close} />;
  }
  return (
    <FormDialog title={title} verb={t("notifications.rotate")} ready save={save} close={close}>
      <Text size="sm">{t("notifications.rotateHelp")}</Text>
    </FormDialog>
  );
}

function ShownOnce({ title, secret, close }: { title: string; secret: string; close: () => void }) {
  return (
    <Dialog title={title} close={close}>
      <Stack gap="md">
        <Text size="sm">{t("notifications.once")}</Text>
        <Command line={secret} />
        <Group justify="flex-end">
          <Button onClick={close}>{t("keys.stored")}</Button>
        </Group>
      </Stack>
    </Dialog>
  );
}
