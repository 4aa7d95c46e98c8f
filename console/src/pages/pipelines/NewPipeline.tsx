import { useNavigate } from "@tanstack/react-router";
import { api, type Pipeline, unwrap } from "@/api/client";
import { type PipelinePlan, planPipeline } from "@/forms/plans";
import { SpecPage } from "@/forms/SpecPage";
import type { Values } from "@/forms/values";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { t } from "@/texts";
import { conditionOf, nameOf } from "./PipelinePage";

const EXAMPLE: Values = {
  name: "train",
  steps: [
    { name: "load", spec: { command: ["python", "load.py"] } },
    { name: "part", after: ["load"], array: "0-3", spec: { command: ["python", "part.py"] } },
    { name: "report", after: ["part"], spec: { command: ["python", "report.py"] } },
  ],
};

/** Submits a pipeline from its text, with a dry run beside it. */
export function NewPipeline() {
  const navigate = useNavigate();
  return (
    <SpecPage<PipelinePlan, Pipeline>
      title={t("pipelines.create")}
      lead={t("pipelines.newLead")}
      start={EXAMPLE}
      verb={t("pipelines.submit")}
      plan={{ title: t("pipelines.plan"), ask: planPipeline, show: (plan) => <PlannedSteps plan={plan} /> }}
      save={(spec, key) =>
        unwrap(api.POST("/v1/pipelines", { body: spec as never, headers: { "Idempotency-Key": key } }))
      }
      done={(made) => t("pipelines.submitted", { name: visible(made.name) })}
      saved={(made) => void navigate({ to: "/pipelines/$ref", params: { ref: made.id } })}
    />
  );
}

function PlannedSteps({ plan }: { plan: PipelinePlan }) {
  const steps = plan.steps ?? [];
  return (
    <>
      <p>{t("pipelines.planned", { count: steps.length })}</p>
      <DataTable
        label={t("pipelines.plan")}
        rows={steps}
        id={nameOf}
        columns={[
          { key: "step", header: t("pipeline.step"), cell: nameOf },
          {
            key: "after",
            header: t("pipeline.after"),
            cell: (step) => (step.after ?? []).map(conditionOf).join(", ") || "–",
          },
        ]}
      />
    </>
  );
}
