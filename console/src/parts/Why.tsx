import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { duration, visible } from "./format";
import { Age } from "./Time";

type Explanation = Schemas["WhyView"] | Schemas["PlanView"];

/** When it can start and how accurate such estimates were, or why this is unknown. */
export function ExpectedStart({ why }: { why: Explanation }) {
  if (!why.expected_start) {
    return (
      <span className="dim">
        {t("why.unknown", { basis: why.basis?.replace(/^unknown: /, "") || t("why.noBasis") })}
      </span>
    );
  }
  const off = why.calibration?.error_p90_s;
  return (
    <span title={why.basis ?? ""}>
      <Age at={why.expected_start} />
      {off === undefined ? "" : ` ± ${duration(off * 1000)}`}
    </span>
  );
}

/** Why a session waits or would wait. */
export function WhyDetails({ why }: { why: Explanation }) {
  const conditions = (why.conditions ?? []).filter((condition) => !condition.met);
  return (
    <div className="why">
      <p className="why-text">{visible(why.text)}</p>
      {why.position ? (
        <p>{t("why.position", { position: why.position, waiting: why.waiting ?? why.position })}</p>
      ) : null}
      <p>
        {t("why.expected")}: <ExpectedStart why={why} />
      </p>
      <Lines title={t("why.conditions")} lines={conditions.map((condition) => condition.text)} />
      <Lines title={t("why.refusals")} lines={why.refusals ?? []} />
      <Lines title={t("why.fenced")} lines={why.fenced ?? []} />
      <Lines title={t("why.blockers")} lines={why.blockers ?? []} />
    </div>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] }) {
  if (lines.length === 0) {
    return null;
  }
  return (
    <>
      <p className="dim">{title}</p>
      <ul>
        {lines.map((line) => (
          <li key={line}>{visible(line)}</li>
        ))}
      </ul>
    </>
  );
}
