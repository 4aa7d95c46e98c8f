import { Fieldset, NumberInput, SimpleGrid, TagsInput } from "@mantine/core";
import type { Schemas } from "@/api/client";
import { linesOf, slotsOf } from "@/forms/slotLines";
import { t } from "@/texts";

type Limits = Schemas["GroupLimits"];

const MINUTE_S = 60;
const TIMES = [
  "max_batch_time_s",
  "default_batch_time_s",
  "max_interactive_time_s",
  "default_interactive_time_s",
] as const;
const COUNTS = ["max_running_per_user", "max_pending_per_user"] as const;
const SLOTS = ["max_per_session", "max_per_user"] as const;

const isSet = (value: unknown) =>
  typeof value === "object" && value !== null ? Object.keys(value).length > 0 : value != null;

/** Limits of the group on a session and on a user; null means that there are none. */
export function LimitFields({
  value,
  set,
}: {
  value: Limits | null | undefined;
  set: (value: Limits | null) => void;
}) {
  const change = (part: Partial<Limits>) => {
    const next = { ...value, ...part } as Limits;
    set(Object.values(next).some(isSet) ? next : null);
  };
  return (
    <Fieldset legend={t("groupLimits.title")}>
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        {TIMES.map((field) => (
          <Minutes
            key={field}
            label={t(`groupLimits.${field}`)}
            help={t(`groupLimits.${field}Help`)}
            seconds={value?.[field]}
            set={(seconds) => change({ [field]: seconds })}
          />
        ))}
        {COUNTS.map((field) => (
          <NumberInput
            key={field}
            label={t(`groupLimits.${field}`)}
            description={t(`groupLimits.${field}Help`)}
            min={1}
            allowDecimal={false}
            value={value?.[field] ?? ""}
            onChange={(next) => change({ [field]: next === "" ? null : Number(next) })}
          />
        ))}
        {SLOTS.map((field) => (
          <SlotLines
            key={field}
            label={t(`groupLimits.${field}`)}
            help={t(`groupLimits.${field}Help`)}
            slots={value?.[field]}
            set={(slots) => change({ [field]: slots })}
          />
        ))}
      </SimpleGrid>
    </Fieldset>
  );
}

/** A time in minutes; empty means none. */
export function Minutes({
  label,
  help,
  seconds,
  set,
}: {
  label: string;
  help: string;
  seconds: number | null | undefined;
  set: (seconds: number | null) => void;
}) {
  return (
    <NumberInput
      label={label}
      description={help}
      min={0}
      suffix={t("groupLimits.minutes")}
      value={seconds == null ? "" : seconds / MINUTE_S}
      onChange={(next) => set(next === "" ? null : Number(next) * MINUTE_S)}
    />
  );
}

/** Amounts by slot, one entry for each. */
export function SlotLines({
  label,
  help,
  slots,
  set,
}: {
  label: string;
  help: string;
  slots: Record<string, string | number> | undefined;
  set: (slots: Record<string, string>) => void;
}) {
  return (
    <TagsInput
      label={label}
      description={help}
      placeholder="cuda.device=4"
      value={linesOf(slots)}
      onChange={(lines) => set(slotsOf(lines))}
    />
  );
}
