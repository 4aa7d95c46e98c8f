import { NumberInput, SegmentedControl, Select, SimpleGrid, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { Schemas } from "@/api/client";
import { runtimesQuery } from "@/api/queries";
import { t } from "@/texts";

type Hpc = Schemas["HpcOptions"];
type Runtime = Schemas["RuntimeView"];
/** Fields for which this console has texts. The manager reports which of them a runtime supports. */
const FIELDS = ["partition", "qos", "account", "cluster", "node_type", "project", "template"] as const;
const HOUR_S = 3600;

/** Runtimes for sites. A simulated one is offered only if the group already has it. */
const sitesOf = (all: Runtime[], chosen?: string) =>
  all.filter((one) => one.site_jobs && (!one.simulated || one.name === chosen));

/** What the jobs of a group's sessions request from a site; null means that its sessions run on nodes. */
export function HpcFields({
  value,
  set,
}: {
  value: Hpc | null | undefined;
  set: (value: Hpc | null) => void;
}) {
  const client = useQueryClient();
  const begin = async () => {
    const [first] = sitesOf(await client.ensureQueryData(runtimesQuery));
    if (first) {
      set({ runtime: first.name as Hpc["runtime"], walltime_s: 24 * HOUR_S });
    }
  };
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
        onChange={(kind) => (kind === "site" ? void begin() : set(null))}
      />
      {value ? <SiteFields value={value} set={set} /> : null}
    </>
  );
}

function SiteFields({ value, set }: { value: Hpc; set: (value: Hpc) => void }) {
  const sites = sitesOf(useQuery(runtimesQuery).data ?? [], value.runtime);
  const known = sites.find((one) => one.name === value.runtime)?.job_fields ?? [];
  const change = (part: Partial<Hpc>) => set({ ...value, ...part });
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }}>
      <Select
        label={t("hpc.runtime")}
        allowDeselect={false}
        data={[...new Set([...sites.map((one) => one.name), value.runtime])]}
        value={value.runtime}
        onChange={(runtime) => change({ runtime: runtime as Hpc["runtime"] })}
      />
      <Hours
        label={t("hpc.walltime")}
        help={t("hpc.walltimeHelp")}
        seconds={value.walltime_s}
        set={(walltime_s) => change({ walltime_s: walltime_s ?? 0 })}
      />
      <Hours
        label={t("hpc.queue")}
        help={t("hpc.queueHelp")}
        optional
        seconds={value.queue_timeout_s ?? null}
        set={(queue_timeout_s) => change({ queue_timeout_s })}
      />
      {FIELDS.filter((field) => known.includes(field)).map((field) => (
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
  );
}

/** Whether the fields can be sent. The manager checks the rest. */
export const hpcIsReady = (value: Hpc | null | undefined) =>
  !value || (value.walltime_s > 0 && (value.queue_timeout_s ?? 1) > 0);

function Hours({
  label,
  help,
  seconds,
  set,
  optional = false,
}: {
  label: string;
  help: string;
  seconds: number | null;
  set: (seconds: number | null) => void;
  optional?: boolean;
}) {
  return (
    <NumberInput
      label={label}
      description={help}
      required={!optional}
      min={0}
      decimalScale={2}
      error={seconds === null || seconds > 0 ? undefined : t("hpc.positive")}
      value={seconds === null ? "" : seconds / HOUR_S}
      onChange={(hours) => set(optional && hours === "" ? null : Math.round(Number(hours) * HOUR_S))}
    />
  );
}
