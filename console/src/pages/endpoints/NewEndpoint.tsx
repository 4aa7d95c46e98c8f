import { Button, Group, NumberInput, Select, SimpleGrid, Stack, TagsInput, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { groupsQuery } from "@/api/queries";
import { useAction } from "@/parts/actions";
import { Page, Section } from "@/parts/Page";
import { Problem } from "@/parts/States";
import { WhyDetails } from "@/parts/Why";
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
  // Where a replica would go: that of a session which runs the same.
  const plan = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/v1/sessions", {
          params: { query: { dry_run: true } },
          body: { ...workload(fields), type: "inference" } as never,
        }),
      ) as Promise<unknown> as Promise<Schemas["PlanView"]>,
  });
  const create = useAction(
    () =>
      unwrap(
        api.POST("/v1/endpoints", {
          body: { ...workload(fields), name: fields.name.trim(), replicas: fields.replicas } as never,
        }),
      ),
    (made) => t("newEndpoint.created", { name: made.name }),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate(undefined, {
      onSuccess: (made) => void navigate({ to: "/endpoints/$name", params: { name: made.name } }),
    });
  };
  return (
    <Page title={t("endpoints.create")} lead={t("newEndpoint.lead")}>
      <div className="columns">
        <Section title={t("newSession.what")}>
          <form onSubmit={submit}>
            <Stack gap="md">
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
              {create.error ? <Problem error={create.error} /> : null}
              <Group justify="flex-end" gap="xs">
                <Button
                  variant="default"
                  loading={plan.isPending}
                  disabled={fields.model.trim() === ""}
                  onClick={() => plan.mutate()}
                >
                  {t("newSession.dryRun")}
                </Button>
                <Button type="submit" loading={create.isPending}>
                  {t("action.create")}
                </Button>
              </Group>
            </Stack>
          </form>
        </Section>
        <Section title={t("newEndpoint.where")}>
          {plan.error ? <Problem error={plan.error} /> : null}
          {plan.data ? (
            <div aria-live="polite">
              {(plan.data.places ?? []).map((place) => (
                <p key={place.agent_id}>
                  <strong>{place.agent_id}</strong>{" "}
                  {place.devices.map((device) => device.device_id).join(", ")}
                </p>
              ))}
              <WhyDetails why={plan.data} />
            </div>
          ) : (
            <p className="dim">{t("newSession.whereHelp")}</p>
          )}
        </Section>
      </div>
    </Page>
  );
}
