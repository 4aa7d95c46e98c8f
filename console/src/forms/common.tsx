import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { groupsQuery, runtimesQuery, secretNamesQuery } from "@/api/queries";
import { t } from "@/texts";
import { ChoiceField, type Form, NumberField, PairsField, Part, TextField, Two, WordsField } from "./fields";
import { getIn, setIn, type Values } from "./values";

type Runtime = Schemas["RuntimeView"];

export function GroupField({ form, path = "resource_group" }: { form: Form; path?: string }) {
  const groups = useQuery(groupsQuery);
  return (
    <ChoiceField
      form={form}
      path={path}
      label={t("field.group")}
      choices={groups.data?.map((group) => group.name) ?? ["default"]}
      none="default"
    />
  );
}

/** The runtimes that a session can request. A site has its own; a group without agents can get any others. */
function useRuntimes(group: unknown): Runtime[] {
  const all = useQuery(runtimesQuery);
  const groups = useQuery(groupsQuery);
  const found = groups.data?.find((one) => one.name === (group ?? "default"));
  if (found?.options.hpc) {
    return [];
  }
  const offered = found?.runtimes ?? [];
  return (all.data ?? []).filter((one) => (offered.length > 0 ? offered.includes(one.name) : !one.site_jobs));
}

export function RuntimeFields({ form }: { form: Form }) {
  const of = (name: string) =>
    getIn(form.values, [...(form.at ?? []), name]) ?? getIn(form.base ?? {}, [name]);
  const runtimes = useRuntimes(of("resource_group"));
  const all = useQuery(runtimesQuery);
  const runtime = (all.data ?? []).find((one) => one.name === (of("runtime") ?? "process"));
  return (
    <Two>
      {runtimes.length > 0 || of("runtime") ? (
        <ChoiceField
          form={form}
          path="runtime"
          label={t("newSession.runtime")}
          choices={runtimes.map((one) => one.name)}
          none="process"
        />
      ) : null}
      {runtime?.images || of("image") ? (
        <TextField form={form} path="image" label={t("newSession.image")} help={t("form.imageHelp")} />
      ) : null}
    </Two>
  );
}

const DEVICE = /^[a-z][a-z0-9-]*\.(device|shares)$/;

/** CPU, memory and one type of device. Other slots are kept, and are changed in the editor. */
export function ResourceFields({ form, path = ["resources"] }: { form: Form; path?: string[] }) {
  const at = [...(form.at ?? []), ...path];
  const resources = (getIn(form.values, at) ?? {}) as Values;
  const asked = Object.keys(resources).find((slot) => DEVICE.test(slot));
  const [device, setDevice] = useState(asked ?? "cuda.device");
  const [devices, setDevices] = useState([...new Set([device, "cuda.device", "cuda.shares"])]);
  const amount = resources[device];
  return (
    <Two>
      <NumberField form={form} path={[...path, "cpu"]} label="CPU" digits={3} step={0.5} />
      <TextField form={form} path={[...path, "mem"]} label={t("usage.memory")} help={t("form.memoryHelp")} />
      <NumberField form={form} path={[...path, device]} label={t("newSession.devices")} digits={3} />
      <Select
        label={t("newSession.device")}
        description={t("newSession.deviceHelp")}
        allowDeselect={false}
        searchable
        data={devices}
        value={device}
        onSearchChange={(text) =>
          DEVICE.test(text) && !devices.includes(text) && setDevices([...devices, text])
        }
        onChange={(next) => {
          const slot = next ?? "cuda.device";
          setDevice(slot);
          form.set(setIn(setIn(form.values, [...at, device], undefined), [...at, slot], amount));
        }}
      />
    </Two>
  );
}

export function VariablesPart({ form }: { form: Form }) {
  const secrets = useQuery({ ...secretNamesQuery, retry: false });
  return (
    <Part form={form} title={t("form.variables")} names={["env", "secret_env"]}>
      <PairsField
        form={form}
        path="env"
        label={t("form.env")}
        help={t("form.envHelp")}
        add={t("form.addEnv")}
      />
      <PairsField
        form={form}
        path="secret_env"
        label={t("form.secrets")}
        help={t("form.secretsHelp")}
        add={t("form.addSecret")}
        value={t("form.secret")}
        suggestions={secrets.data ?? []}
      />
    </Part>
  );
}

export function PlacementPart({ form, more = [] }: { form: Form; more?: readonly string[] }) {
  return (
    <Part
      form={form}
      title={t("form.placement")}
      names={["user_labels", "labels", "agents", "arch", ...more]}
    >
      <PairsField
        form={form}
        path="user_labels"
        label={t("form.userLabels")}
        help={t("form.userLabelsHelp")}
        add={t("form.addLabel")}
      />
      <PairsField
        form={form}
        path="labels"
        label={t("form.agentLabels")}
        help={t("form.agentLabelsHelp")}
        add={t("form.addAgentLabel")}
      />
      <WordsField form={form} path="agents" label={t("nav.agents")} help={t("form.agentsHelp")} />
      {more.includes("shared_with") ? (
        <WordsField form={form} path="shared_with" label={t("endpoint.shared")} help={t("form.sharedHelp")} />
      ) : null}
    </Part>
  );
}
