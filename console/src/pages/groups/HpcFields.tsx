import { NumberInput, SegmentedControl, Select, SimpleGrid, TextInput } from "@mantine/core";
import type { Schemas } from "@/api/client";
import { t } from "@/texts";

type Hpc = Schemas["HpcOptions"];
const TEXTS = {
  slurm: ["partition", "qos", "account"],
  heappe: ["cluster", "node_type", "project", "template"],
  fake: [],
} as const;
const HOUR_S = 3600;

/** What the jobs of a group's sessions ask of a site; null: its sessions run on nodes. */
export function HpcFields({
  value,
  set,
}: {
  value: Hpc | null | undefined;
  set: (value: Hpc | null) => void;
}) {
  const change = (part: Partial<Hpc>) => value && set({ ...value, ...part });
  return (
    <>
      <SegmentedControl
        transitionDuration={0}
        aria-label={t("hpc.kind")}
        data={[
          { value: "nodes", label: t("hpc.nodes") },
          { value: "site", label: t("hpc.site") },
        ]}
        value={value ? "site" : "nodes"}
        onChange={(kind) => set(kind === "site" ? { runtime: "slurm", walltime_s: 24 * HOUR_S } : null)}
      />
      {value ? (
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <Select
            label={t("hpc.runtime")}
            allowDeselect={false}
            data={[...new Set(["slurm", "heappe", value.runtime])]}
            value={value.runtime}
            onChange={(runtime) => change({ runtime: runtime as Hpc["runtime"] })}
          />
          <Hours
            label={t("hpc.walltime")}
            help={t("hpc.walltimeHelp")}
            seconds={value.walltime_s}
            set={(walltime_s) => change({ walltime_s })}
          />
          <Hours
            label={t("hpc.queue")}
            help={t("hpc.queueHelp")}
            seconds={value.queue_timeout_s ?? 168 * HOUR_S}
            set={(queue_timeout_s) => change({ queue_timeout_s })}
          />
          {TEXTS[value.runtime].map((field) => (
            <TextInput
              key={field}
              label={t(`hpc.${field}`)}
              value={value[field] ?? ""}
              onChange={(event) => change({ [field]: event.currentTarget.value })}
            />
          ))}
          {(["node_cores", "node_gpus"] as const).map((field) => (
            <NumberInput
              key={field}
              label={t(`hpc.${field}`)}
              description={t("hpc.nodeHelp")}
              min={field === "node_cores" ? 1 : 0}
              allowDecimal={false}
              value={value[field] ?? ""}
              onChange={(next) => change({ [field]: next === "" ? null : Number(next) })}
            />
          ))}
          <TextInput
            label={t("hpc.node_memory")}
            description={t("hpc.memoryHelp")}
            value={String(value.node_memory ?? "")}
            onChange={(event) => change({ node_memory: event.currentTarget.value.trim() || null })}
          />
        </SimpleGrid>
      ) : null}
    </>
  );
}

/** Whether the fields may be sent. The manager checks the rest. */
export const hpcIsReady = (value: Hpc | null | undefined) =>
  !value || (value.walltime_s > 0 && (value.queue_timeout_s ?? 1) > 0);

function Hours({
  label,
  help,
  seconds,
  set,
}: {
  label: string;
  help: string;
  seconds: number;
  set: (seconds: number) => void;
}) {
  return (
    <NumberInput
      label={label}
      description={help}
      required
      min={0}
      decimalScale={2}
      error={seconds > 0 ? undefined : t("hpc.positive")}
      value={seconds / HOUR_S}
      onChange={(hours) => set(Math.round(Number(hours) * HOUR_S))}
    />
  );
}
