import type { Pipeline } from "@/api/client";
import { number } from "@/parts/format";
import { t } from "@/texts";

// States that need attention come first, as in the picture of the graph.
export const STATES = ["failed", "stopped", "running", "pending", "skipped", "succeeded"] as const;
export type StepState = (typeof STATES)[number];

// States that the bar alone does not show.
const TOLD = ["failed", "stopped", "running", "skipped"] as const;

export const total = (counts: Pipeline["counts"]) => STATES.reduce((sum, one) => sum + (counts[one] ?? 0), 0);

/** How many steps have ended, as a bar and in words: "3 of 5 ended, 1 failed". */
export function Counts({ counts }: { counts: Pipeline["counts"] }) {
  const all = total(counts);
  const ended = all - (counts.pending ?? 0) - (counts.running ?? 0);
  const share = (count: number) => `${all > 0 ? (100 * count) / all : 0}%`;
  const failed = counts.failed ?? 0;
  const figures = t("pipeline.ended", { ended: number(ended), count: all });
  const rest = TOLD.filter((one) => counts[one]).map(
    (one) => `, ${number(counts[one] ?? 0)} ${t(`pipeline.in_${one}`)}`,
  );
  return (
    <div>
      <div className="bar" role="img" aria-label={`${figures}${rest.join("")}`}>
        <span style={{ width: share(ended - failed) }} />
        {failed > 0 ? <span data-kind="faulty" style={{ width: share(failed) }} /> : null}
      </div>
      <span className="dim">
        {figures}
        {rest}
      </span>
    </div>
  );
}
