import { NativeSelect, NumberInput, SimpleGrid } from "@mantine/core";
import type { Schemas } from "@/api/client";
import { t } from "@/texts";

type Preemption = Schemas["PreemptionOptions"];
type Ceilings = Schemas["PriorityCeilings"];

const CHOICES = {
  order: ["newest", "oldest", "smallest"],
  among: ["all", "same-project", "same-user"],
} as const;

/** Times in seconds, with their defaults. */
const TIMES = { min_runtime_s: 0, max_grace_s: 300 } as const;

/** Whether the group's sessions are stopped for others, and which ones; null means never. */
export function PreemptionFields({
  value,
  set,
}: {
  value: Preemption | null | undefined;
  set: (value: Preemption | null) => void;
}) {
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }}>
      <NativeSelect
        label={t("preemption.how")}
        description={t("preemption.howHelp")}
        data={[
          { value: "never", label: t("preemption.never") },
          { value: "requeue", label: t("preemption.requeue") },
          { value: "end", label: t("preemption.end") },
        ]}
        value={value ? (value.how ?? "requeue") : "never"}
        onChange={(event) => {
          const how = event.currentTarget.value;
          set(how === "never" ? null : ({ ...value, how } as Preemption));
        }}
      />
      {value ? <Rules value={value} change={(part) => set({ ...value, ...part })} /> : null}
    </SimpleGrid>
  );
}

function Rules({ value, change }: { value: Preemption; change: (part: Partial<Preemption>) => void }) {
  return (
    <>
      {(["order", "among"] as const).map((field) => (
        <NativeSelect
          key={field}
          label={t(`preemption.${field}`)}
          description={t(`preemption.${field}Help`)}
          data={[...CHOICES[field]]}
          value={value[field] ?? CHOICES[field][0]}
          onChange={(event) => change({ [field]: event.currentTarget.value } as Partial<Preemption>)}
        />
      ))}
      {(["min_runtime_s", "max_grace_s"] as const).map((field) => (
        <NumberInput
          key={field}
          label={t(`preemption.${field}`)}
          description={t(`preemption.${field}Help`)}
          min={0}
          max={field === "max_grace_s" ? 3600 : undefined}
          placeholder={String(TIMES[field])}
          value={value[field] ?? ""}
          onChange={(next) => change({ [field]: next === "" ? undefined : Number(next) })}
        />
      ))}
    </>
  );
}

/** The highest priority that each role may request; null means the default priority for members, any for
 *  project administrators. */
export function CeilingFields({
  value,
  set,
}: {
  value: Ceilings | null | undefined;
  set: (value: Ceilings | null) => void;
}) {
  const change = (part: Partial<Ceilings>) => {
    const next = { ...value, ...part };
    set(next.member === undefined && next.project_admin === undefined ? null : next);
  };
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }}>
      {(["member", "project_admin"] as const).map((role) => (
        <NumberInput
          key={role}
          label={t(`ceiling.${role}`)}
          description={t(`ceiling.${role}Help`)}
          min={0}
          max={100}
          allowDecimal={false}
          value={value?.[role] ?? ""}
          onChange={(next) => change({ [role]: next === "" ? undefined : Number(next) })}
        />
      ))}
    </SimpleGrid>
  );
}
