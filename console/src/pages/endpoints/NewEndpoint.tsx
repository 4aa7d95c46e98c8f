import { NumberInput, Select, SimpleGrid, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { groupsQuery } from "@/api/queries";
import { CreatePage } from "@/parts/CreatePage";
import { t } from "@/texts";

type Engine = "vllm" | "llamacpp";

interface Fields {
  name: string;
  engine: Engine;
  model: string;
  group: string;
  replicas: number;
  cpu: number;
  mem: string;
  gpus: number;
  args: string[];
}

const workload = (fields: Fields) => ({
  engine: fields.engine,
  model: fields.model.trim(),
  args: fields.args,
  resource_group: fields.group,
  resources: { cpu: fields.cpu, mem: fields.mem, ...(fields.gpus > 0 ? { "cuda.device": fields.gpus } : {}) },
});

export function NewEndpoint() {
  const navigate = useNavigate();
  const groups = useQuery(groupsQuery);
  const [fields, setFields] = useState<Fields>({
    name: "",
    engine: "vllm",
    model: "",
    group: "default",
    replicas: 1,
    cpu: 1,
    mem: "2GiB",
    gpus: 1,
    args: [],
  });
  const set = (change: Partial<Fields>) => setFields({ ...fields, ...change });
  return (
    <CreatePage
      title={t("endpoints.create")}
      lead={t("newEndpoint.lead")}
      where={t("newEndpoint.where")}
      ready={fields.model.trim() !== ""}
      // A replica would be placed like a session that runs the same.
      plan={() =>
        unwrap(
          api.POST("/v1/sessions/plan", {
            body: { ...workload(fields), type: "inference" } as never,
          }),
        )
      }
      create={() =>
        unwrap(
          api.POST("/v1/endpoints", {
            body: { ...workload(fields), name: fields.name.trim(), replicas: fields.replicas } as never,
          }),
        )
      }
      done={(made) => t("newEndpoint.created", { name: made.name })}
      made={(made) => void navigate({ to: "/endpoints/$name", params: { name: made.name } })}
    >
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <TextInput
          label={t("field.name")}
          description={t("newEndpoint.nameHelp")}
          required
          value={fields.name}
          onChange={(event) => set({ name: event.currentTarget.value })}
        />
        <Select
          label={t("endpoint.engine")}
          description={t("newEndpoint.engineHelp")}
          allowDeselect={false}
          data={["vllm", "llamacpp"]}
          value={fields.engine}
          onChange={(value) => set({ engine: value as Engine, gpus: value === "vllm" ? 1 : 0 })}
        />
      </SimpleGrid>
      <TextInput
        label={t("endpoint.model")}
        description={t("newEndpoint.modelHelp")}
        required
        value={fields.model}
        onChange={(event) => set({ model: event.currentTarget.value })}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <Select
          label={t("field.group")}
          allowDeselect={false}
          data={groups.data?.map((group) => group.name) ?? ["default"]}
          value={fields.group}
          onChange={(value) => set({ group: value ?? "default" })}
        />
        <NumberInput
          label={t("endpoints.replicas")}
          min={0}
          max={1000}
          value={fields.replicas}
          onChange={(value) => set({ replicas: Number(value) })}
        />
        <NumberInput
          label={t("newEndpoint.gpus")}
          min={0}
          value={fields.gpus}
          onChange={(value) => set({ gpus: Number(value) })}
        />
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
      </SimpleGrid>
      <TagsInput
        label={t("newEndpoint.args")}
        description={t("newEndpoint.argsHelp")}
        value={fields.args}
        onChange={(args) => set({ args })}
      />
    </CreatePage>
  );
}
