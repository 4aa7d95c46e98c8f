import { Select } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, type Pipeline, type PipelineStep, unwrap } from "@/api/client";
import { pipelineGraphQuery, pipelineQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { type Column, DataTable } from "@/parts/DataTable";
import { number, reasonText, visible } from "@/parts/format";
import { Facts, Page, Section } from "@/parts/Page";
import { Progress } from "@/parts/Progress";
import { Command, Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age, Lasted } from "@/parts/Time";
import { t } from "@/texts";
import { Counts, STATES, type StepState, total } from "./Counts";
import { Arrays } from "./Elements";

// With more boxes than this, a picture is no longer an overview.
const DRAWN = 300;

export function PipelinePage() {
  const { ref } = useParams({ from: "/pipelines/$ref" });
  const pipeline = useQuery(pipelineQuery(ref));
  return (
    <Loaded query={pipeline} height={300} page={visible(ref)}>
      {(found) => (
        <Page
          title={visible(found.name)}
          lead={
            <>
              <StatusText status={found.state} /> · {visible(found.project)}/{visible(found.user)}
            </>
          }
          may="change"
          actions={
            <>
              <Retry pipeline={found} />
              <Stop pipeline={found} />
            </>
          }
        >
          <Section title={t("pipeline.about")}>
            <Facts
              facts={[
                [t("pipeline.steps"), <Counts key="steps" counts={found.counts} />],
                [t("field.created"), <Age key="created" at={found.created_at} />],
                [t("pipeline.by"), visible(found.created_by)],
                ...firstFailure(found),
                [
                  "id",
                  <span key="id" className="mono">
                    {found.id}
                  </span>,
                ],
              ]}
            />
          </Section>
          <Section title={t("pipeline.graph")}>
            <Picture pipeline={found} />
          </Section>
          <Arrays pipeline={found} />
          <Section title={t("pipeline.steps")}>
            <Steps pipeline={found} />
          </Section>
        </Page>
      )}
    </Loaded>
  );
}

function firstFailure({ first_failure }: Pipeline): [string, ReactNode][] {
  return first_failure
    ? [[t("pipeline.firstFailure"), <FirstFailure key="failure" failure={first_failure} />]]
    : [];
}

/** The step that failed first, with a link to its session, which has its log. */
function FirstFailure({ failure }: { failure: NonNullable<Pipeline["first_failure"]> }) {
  const { step, index, session, session_id, reason = "", exit_code, skipped = [] } = failure;
  const name = index === null || index === undefined ? visible(step) : `${visible(step)} [${index}]`;
  const why =
    exit_code === null || exit_code === undefined
      ? reasonText(reason)
      : t("pipeline.failedWith", { reason: reasonText(reason), code: exit_code });
  return (
    <>
      <Link to="/sessions/$ref" params={{ ref: session_id }} className="link" title={visible(session)}>
        {name}
      </Link>
      {why ? `: ${why}` : ""}
      {skipped.length > 0 ? (
        <div>
          {t("pipeline.skippedBecause", {
            count: skipped.length,
            steps: skipped.map((one) => visible(one)).join(", "),
          })}
        </div>
      ) : null}
    </>
  );
}

const live = ({ counts }: Pipeline) => (counts.pending ?? 0) + (counts.running ?? 0) > 0;

function Stop({ pipeline }: { pipeline: Pipeline }) {
  const name = visible(pipeline.name);
  const { running = 0, pending = 0 } = pipeline.counts;
  return (
    <Opener
      label={t("pipeline.stop")}
      danger
      gone={!live(pipeline)}
      dialog={(close) => (
        <Confirm
          title={t("pipeline.stopTitle", { name })}
          consequences={[
            ...(running > 0 ? [t("pipeline.stopRunning", { count: running })] : []),
            ...(pending > 0 ? [t("pipeline.stopPending", { count: pending })] : []),
            t("pipeline.stopKeeps"),
          ]}
          verb={t("pipeline.stop")}
          act={() => unwrap(api.POST("/v1/pipelines/{ref}/stop", { params: { path: { ref: pipeline.id } } }))}
          done={t("pipeline.stopped", { name })}
          close={close}
        />
      )}
    />
  );
}

/** Shown if a step has failed or was stopped; the manager refuses it while a step runs. */
function Retry({ pipeline }: { pipeline: Pipeline }) {
  const name = visible(pipeline.name);
  const { failed = 0, stopped = 0, skipped = 0, succeeded = 0, running = 0 } = pipeline.counts;
  if (failed + stopped === 0) {
    return null;
  }
  return (
    <Opener
      label={t("pipeline.retry")}
      disabled={running > 0}
      reason={t("pipeline.retryRunning")}
      dialog={(close) => (
        <Confirm
          title={t("pipeline.retryTitle", { name })}
          consequences={[
            t("pipeline.retryRuns", { count: failed + stopped }),
            ...(skipped > 0 ? [t("pipeline.retrySkipped", { count: skipped })] : []),
            ...(succeeded > 0 ? [t("pipeline.retryKeeps", { count: succeeded })] : []),
          ]}
          verb={t("pipeline.retry")}
          safe
          act={() =>
            unwrap(api.POST("/v1/pipelines/{ref}/retry", { params: { path: { ref: pipeline.id } } }))
          }
          done={t("pipeline.retried", { name })}
          close={close}
        />
      )}
    />
  );
}

/** The graph as drawn by the manager. It is an image, so nothing in it can affect this page. */
function Picture({ pipeline }: { pipeline: Pipeline }) {
  const steps = pipeline.steps ?? [];
  const boxes = new Set(steps.map((step) => step.name)).size;
  const drawn = boxes <= DRAWN;
  // The parts of each step that the picture shows. It is redrawn when one of them changes.
  const shown = drawn ? steps.map((step) => `${step.state}${step.reason}`).join() : "";
  const graph = useQuery({
    ...pipelineGraphQuery(pipeline.id, shown),
    enabled: drawn,
    placeholderData: keepPreviousData,
  });
  if (!drawn) {
    return (
      <Empty
        title={t("pipeline.tooLarge", { count: boxes })}
        command={`moorage pipelines describe --svg ${pipeline.id} > pipeline.svg`}
      >
        {t("pipeline.tooLargeText")}
      </Empty>
    );
  }
  return (
    <Loaded query={graph}>
      {(svg) => (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard
        <section className="picture" aria-label={t("pipeline.graph")} tabIndex={0}>
          <img
            src={`data:image/svg+xml,${encodeURIComponent(svg)}`}
            alt={t("pipeline.graphOf", { name: visible(pipeline.name), count: boxes })}
          />
        </section>
      )}
    </Loaded>
  );
}

export const nameOf = ({ name, index }: PipelineStep) =>
  index === null || index === undefined ? visible(name) : `${visible(name)} [${index}]`;

const COLUMNS: Column<PipelineStep>[] = [
  { key: "step", header: t("pipeline.step"), cell: nameOf },
  { key: "state", header: t("field.status"), cell: (step) => <StatusText status={step.state} /> },
  {
    key: "progress",
    header: t("field.progress"),
    cell: (step) => (step.state === "running" ? <Progress progress={step.progress} /> : "–"),
  },
  {
    key: "duration",
    header: t("pipeline.duration"),
    cell: (step) => <Lasted from={step.started_at} until={step.ended_at} />,
  },
  {
    key: "after",
    header: t("pipeline.after"),
    wide: true,
    cell: (step) => (step.after ?? []).map(conditionOf).join(", ") || "–",
  },
  {
    key: "session",
    header: t("field.session"),
    cell: (step) => (
      <Link to="/sessions/$ref" params={{ ref: step.session_id }} className="link">
        {visible(step.session)}
      </Link>
    ),
  },
  { key: "run", header: t("pipeline.run"), wide: true, cell: (step) => step.run },
  {
    key: "note",
    header: t("field.note"),
    cell: (step) => (
      <>
        {[reasonText(step.reason ?? ""), visible(step.detail ?? "")].filter(Boolean).join(": ")}
        {step.adopted_from ? (
          <Link to="/sessions/$ref" params={{ ref: step.adopted_from }} className="link">
            {" "}
            {t("pipeline.shared")}
          </Link>
        ) : null}
      </>
    ),
  },
];

export function conditionOf({
  step,
  on = "success",
  of,
}: NonNullable<PipelineStep["after"]>[number]): string {
  const conditions = [
    ...(on === "success" ? [] : [t(`pipeline.on_${on}`)]),
    ...(of ? [t(`pipeline.of_${of}`)] : []),
  ];
  return conditions.length === 0
    ? visible(step)
    : t("pipeline.on", { step: visible(step), condition: conditions.join(", ") });
}

function Steps({ pipeline }: { pipeline: Pipeline }) {
  const { state } = useSearch({ from: "/pipelines/$ref" });
  const navigate = useNavigate({ from: "/pipelines/$ref" });
  const rows = (pipeline.steps ?? []).filter((step) => state === undefined || step.state === state);
  const label = (one: StepState) =>
    t("pipeline.countOf", { state: t(`status.${one}`), count: pipeline.counts[one] ?? 0 });
  return (
    <>
      <div className="filters">
        <Select
          size="xs"
          label={t("field.status")}
          clearable
          placeholder={t("pipeline.anyState", { all: number(total(pipeline.counts)) })}
          data={STATES.filter((one) => pipeline.counts[one] || one === state).map((value) => ({
            value,
            label: label(value),
          }))}
          value={state ?? null}
          onChange={(value) =>
            void navigate({ search: { state: (value ?? undefined) as StepState | undefined }, replace: true })
          }
        />
      </div>
      <DataTable
        key={state ?? ""}
        label={t("pipeline.steps")}
        rows={rows}
        id={(step) => `${step.name}/${step.index ?? ""}`}
        columns={COLUMNS}
        empty={<Empty title={t("pipeline.noneSo")} />}
      />
      <Command line={`moorage pipelines describe ${pipeline.id}`} />
    </>
  );
}
