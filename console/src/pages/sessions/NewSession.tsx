import { Button, Group, NumberInput, Select, SimpleGrid, Stack, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { groupsQuery, type SessionType } from "@/api/queries";
import { useAction } from "@/parts/actions";
import { slotsText } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Problem } from "@/parts/States";
import { WhyDetails } from "@/parts/Why";
import { t } from "@/texts";

type Spec = Schemas["SessionSpec"];
type Plan = Schemas["PlanView"];

interface Fields {
  name: string;
  type: SessionType;
  group: string;
  command: string;
  runtime: "process" | "docker";
  image: string;
  cpu: number;
  mem: string;
  device: string;
  devices: number;
  priority: number;
}

function specOf(fields: Fields): Spec {
  const command = fields.command.trim();
  return {
    ...(fields.name.trim() ? { name: fields.name.trim() } : {}),
    type: fields.type,
    resource_group: fields.group,
    command: command ? ["/bin/sh", "-c", command] : [],
    runtime: fields.runtime,
    ...(fields.runtime === "docker" ? { image: fields.image.trim() } : {}),
    resources: {
      cpu: fields.cpu,
      mem: fields.mem,
      ...(fields.devices > 0 ? { [fields.device]: fields.devices } : {}),
    },
    priority: fields.priority,
  } as Spec;
}

export function NewSession() {
  const search = useSearch({ from: "/new-session" });
  const navigate = useNavigate();
  const groups = useQuery(groupsQuery);
  const [fields, setFields] = useState<Fields>({
    name: "",
    type: "batch",
    group: search.group ?? "default",
    command: "",
    runtime: "process",
    image: "",
    cpu: 1,
    mem: "1GiB",
    device: "cuda.device",
    devices: 0,
    priority: 10,
  });
  const set = (change: Partial<Fields>) => setFields({ ...fields, ...change });
  const plan = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/v1/sessions", { params: { query: { dry_run: true } }, body: specOf(fields) }),
      ) as Promise<unknown> as Promise<Plan>,
  });
  const create = useAction(
    () => unwrap(api.POST("/v1/sessions", { body: specOf(fields) })) as Promise<Session>,
    (made) => t("newSession.created", { name: made.name }),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate(undefined, {
      onSuccess: (made) => void navigate({ to: "/sessions/$ref", params: { ref: made.id } }),
    });
  };
  return (
    <Page title={t("sessions.create")} lead={t("newSession.lead")}>
      <div className="columns">
        <Section title={t("newSession.what")}>
          <form onSubmit={submit}>
            <Stack gap="md">
              <FormFields
                fields={fields}
                set={set}
                groups={groups.data?.map((group) => group.name) ?? ["default"]}
              />
              {create.error ? <Problem error={create.error} /> : null}
              <Group justify="flex-end" gap="xs">
                <Button variant="default" loading={plan.isPending} onClick={() => plan.mutate()}>
                  {t("newSession.dryRun")}
                </Button>
                <Button type="submit" loading={create.isPending}>
                  {t("action.create")}
                </Button>
              </Group>
            </Stack>
          </form>
        </Section>
        <Section title={t("newSession.where")}>
          {plan.error ? (
            <Problem error={plan.error} />
          ) : plan.data ? (
            <PlanResult plan={plan.data} />
          ) : (
            <p className="dim">{t("newSession.whereHelp")}</p>
          )}
        </Section>
      </div>
    </Page>
  );
}

function FormFields({
  fields,
  set,
  groups,
}: {
  fields: Fields;
  set: (change: Partial<Fields>) => void;
  groups: string[];
}) {
  const [devices, setDevices] = useState(["cuda.device", "cuda.shares"]);
  return (
    <>
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <TextInput
          label={t("field.name")}
          description={t("newSession.nameHelp")}
          value={fields.name}
          onChange={(event) => set({ name: event.currentTarget.value })}
        />
        <Select
          label={t("field.type")}
          description={t("newSession.typeHelp")}
          allowDeselect={false}
          data={["batch", "interactive"]}
          value={fields.type}
          onChange={(value) => set({ type: value as SessionType })}
        />
        <Select
          label={t("field.group")}
          allowDeselect={false}
          data={groups}
          value={fields.group}
          onChange={(value) => set({ group: value ?? "default" })}
        />
        <NumberInput
          label={t("session.priority")}
          min={0}
          max={100}
          value={fields.priority}
          onChange={(value) => set({ priority: Number(value) })}
        />
      </SimpleGrid>
      <Textarea
        label={t("newSession.command")}
        description={t("newSession.commandHelp")}
        autosize
        minRows={2}
        value={fields.command}
        onChange={(event) => set({ command: event.currentTarget.value })}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <Select
          label={t("newSession.runtime")}
          allowDeselect={false}
          data={["process", "docker"]}
          value={fields.runtime}
          onChange={(value) => set({ runtime: value as Fields["runtime"] })}
        />
        {fields.runtime === "docker" ? (
          <TextInput
            label={t("newSession.image")}
            required
            value={fields.image}
            onChange={(event) => set({ image: event.currentTarget.value })}
          />
        ) : null}
      </SimpleGrid>
      <SimpleGrid cols={{ base: 1, xs: 2 }}>
        <NumberInput
          label="CPU"
          min={0}
          step={0.5}
          decimalScale={3}
          value={fields.cpu}
          onChange={(value) => set({ cpu: Number(value) })}
        />
        <TextInput
          label={t("usage.memory")}
          value={fields.mem}
          onChange={(event) => set({ mem: event.currentTarget.value })}
        />
        <NumberInput
          label={t("newSession.devices")}
          min={0}
          decimalScale={3}
          value={fields.devices}
          onChange={(value) => set({ devices: Number(value) })}
        />
        <Select
          label={t("newSession.device")}
          description={t("newSession.deviceHelp")}
          allowDeselect={false}
          searchable
          data={devices}
          value={fields.device}
          onSearchChange={(text) =>
            /^[a-z][a-z0-9-]*\.(device|shares)$/.test(text) &&
            !devices.includes(text) &&
            setDevices([...devices, text])
          }
          onChange={(value) => set({ device: value ?? "cuda.device" })}
        />
      </SimpleGrid>
    </>
  );
}

function PlanResult({ plan }: { plan: Plan }) {
  return (
    <div aria-live="polite">
      {plan.fits ? (
        <ul className="plain">
          {(plan.places ?? []).map((place) => (
            <li key={`${place.hostname}/${place.agent_id}`}>
              <strong>{place.agent_id}</strong>{" "}
              {place.devices.length > 0
                ? place.devices.map((device) => `${device.device_id || device.slot}`).join(", ")
                : slotsText({})}
            </li>
          ))}
        </ul>
      ) : null}
      <WhyDetails why={plan} />
    </div>
  );
}
