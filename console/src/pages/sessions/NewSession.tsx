import { NumberInput, Select, SimpleGrid, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { groupsQuery, runtimesQuery } from "@/api/queries";
import type { SessionType } from "@/api/statuses";
import { CreatePage } from "@/parts/CreatePage";
import { t } from "@/texts";

type Spec = Schemas["SessionSpec"];
type Runtime = Schemas["RuntimeView"];
type ResourceGroup = Schemas["GroupView"];

interface Fields {
  name: string;
  type: SessionType;
  group: string;
  command: string;
  /** If empty, the resource group's first runtime. */
  runtime: Runtime["name"] | "";
  image: string;
  cpu: number;
  mem: string;
  device: string;
  devices: number;
  priority: number;
}

/** The runtimes that a session can request. A site has its own; a group without agents can get any others. */
function runtimesOf(all: Runtime[], group: ResourceGroup | undefined): Runtime[] {
  if (group?.options.hpc) {
    return [];
  }
  const offered = group?.runtimes ?? [];
  return all.filter((one) => (offered.length > 0 ? offered.includes(one.name) : !one.site_jobs));
}

function specOf(fields: Fields, runtime: Runtime | undefined): Spec {
  const command = fields.command.trim();
  return {
    ...(fields.name.trim() ? { name: fields.name.trim() } : {}),
    type: fields.type,
    resource_group: fields.group,
    command: command ? ["/bin/sh", "-c", command] : [],
    ...(runtime ? { runtime: runtime.name } : {}),
    ...(runtime?.images ? { image: fields.image.trim() } : {}),
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
  const all = useQuery(runtimesQuery);
  const [fields, setFields] = useState<Fields>({
    name: "",
    type: "batch",
    group: search.group ?? "default",
    command: "",
    runtime: "",
    image: "",
    cpu: 1,
    mem: "1GiB",
    device: "cuda.device",
    devices: 0,
    priority: 10,
  });
  const set = (change: Partial<Fields>) => setFields({ ...fields, ...change });
  const runtimes = runtimesOf(
    all.data ?? [],
    groups.data?.find((group) => group.name === fields.group),
  );
  const runtime = runtimes.find((one) => one.name === fields.runtime) ?? runtimes[0];
  return (
    <CreatePage
      title={t("sessions.create")}
      lead={t("newSession.lead")}
      where={t("newSession.where")}
      ready
      plan={() => unwrap(api.POST("/v1/sessions/plan", { body: specOf(fields, runtime) }))}
      create={() => unwrap(api.POST("/v1/sessions", { body: specOf(fields, runtime) }))}
      done={(made) => t("newSession.created", { name: made.name })}
      made={(made) => void navigate({ to: "/sessions/$ref", params: { ref: made.id } })}
    >
      <FormFields
        fields={fields}
        set={set}
        groups={groups.data?.map((group) => group.name) ?? ["default"]}
        runtimes={runtimes}
        runtime={runtime}
      />
    </CreatePage>
  );
}

function FormFields({
  fields,
  set,
  groups,
  runtimes,
  runtime,
}: {
  fields: Fields;
  set: (change: Partial<Fields>) => void;
  groups: string[];
  runtimes: Runtime[];
  runtime: Runtime | undefined;
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
        {runtime ? (
          <Select
            label={t("newSession.runtime")}
            allowDeselect={false}
            data={runtimes.map((one) => one.name)}
            value={runtime.name}
            onChange={(value) => set({ runtime: value as Fields["runtime"] })}
          />
        ) : null}
        {runtime?.images ? (
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
