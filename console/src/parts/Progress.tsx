import type { Schemas } from "@/api/client";
import { t } from "@/texts";
import { visible } from "./format";

/** A program's progress by its own reports: a bar if it reported a fraction, its figures and its message. */
export function Progress({ progress }: { progress: Schemas["ProgressView"] | null | undefined }) {
  if (!progress) {
    return <>–</>;
  }
  const { fraction, step, of, message, problem } = progress;
  const percent = fraction === null || fraction === undefined ? null : Math.floor(100 * fraction);
  const figures = [
    percent === null ? "" : `${percent} %`,
    step === null || step === undefined
      ? ""
      : of === null || of === undefined
        ? t("progress.step", { step })
        : t("usage.of", { used: step, capacity: of }),
    visible(message ?? ""),
  ].filter(Boolean);
  return (
    <div title={problem ? visible(problem) : undefined}>
      {percent === null ? null : (
        <div className="bar" role="img" aria-label={`${percent} %`}>
          <span style={{ width: `${percent}%` }} />
        </div>
      )}
      <span className="dim wrap">
        {figures.join(" · ")}
        {problem ? ` ${t("progress.problem")}` : ""}
      </span>
    </div>
  );
}
