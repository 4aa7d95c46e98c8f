import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { amount, compareSlots, number, slotName } from "./format";

type Capacities = Record<string, Schemas["SlotCapacity"]>;

/** An amount of an agent's slot, in which devices are counted in thousandths. */
export function offered(slot: string, value: number): string {
  return slot.endsWith(".device") ? number(value / 1000, 2) : amount(slot, value);
}

/** How much of each slot is in use, as a bar with its figures. */
export function UsageBars({ slots }: { slots: Capacities }) {
  const names = Object.keys(slots).sort(compareSlots);
  return (
    <div>
      {names.map((slot) => {
        const { capacity, used, unhealthy } = slots[slot] as Schemas["SlotCapacity"];
        const share = (value: number) => (capacity > 0 ? `${(100 * value) / capacity}%` : "0");
        const figures = t("usage.of", { used: offered(slot, used), capacity: offered(slot, capacity) });
        const faulty = unhealthy > 0 ? t("usage.faulty", { count: offered(slot, unhealthy) }) : "";
        return (
          <div className="usage-row" key={slot}>
            <span>{slotName(slot)}</span>
            <div className="bar" role="img" aria-label={`${slotName(slot)}: ${figures}${faulty}`}>
              <span style={{ width: share(used) }} />
              {unhealthy > 0 ? <span data-kind="faulty" style={{ width: share(unhealthy) }} /> : null}
            </div>
            <span className="figures">
              {figures}
              {faulty}
            </span>
          </div>
        );
      })}
    </div>
  );
}
