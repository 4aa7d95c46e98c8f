import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, unwrap, unwrapVersioned } from "@/api/client";
import { type CronJob, cronJobQuery } from "@/api/cron";
import { GroupField, ResourceFields, VariablesPart } from "@/forms/common";
import { ChoiceField, CommandField, type Form, SpanField, TextField, Two } from "@/forms/fields";
import { HiddenValues } from "@/forms/PlanResult";
import { SpecPage } from "@/forms/SpecPage";
import { brief, getIn, type Values } from "@/forms/values";
import { Conflict, type Latest } from "@/parts/Conflict";
import { visible } from "@/parts/format";
import { Loaded } from "@/parts/States";
import { Moment } from "@/parts/Time";
import { t } from "@/texts";

type Times = Schemas["CronTimesView"];

const START: Values = {
  name: "",
  cron: "30 7 * * MON-FRI",
  time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
  session: { command: [], resources: { cpu: 1, mem: "1GiB" } },
};

const specOf = (job: CronJob) => brief(job.spec, { kind: "cron-job" });

/** The next runs, computed by the manager. */
const preview = {
  title: t("cron.preview"),
  ask: ({ cron, time_zone, starts_at, ends_at }: Values) => {
    const given = { cron, time_zone, starts_at, ends_at };
    const body = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    return unwrap(
      api.POST("/v1/cron-jobs/plan", { params: { query: { count: 5 } }, body: body as never }),
    ) as Promise<Times>;
  },
  show: (plan: Times) => <NextTimes plan={plan} />,
};

function NextTimes({ plan }: { plan: Times }) {
  if (plan.times.length === 0) {
    return <p>{t("cron.noTimes")}</p>;
  }
  return (
    <>
      <p className="dim">{t("cron.previewIn", { zone: plan.time_zone })}</p>
      <ol className="cron-times">
        {plan.times.map((at) => (
          <li key={at}>
            <Moment at={at} zone={plan.time_zone} />
          </li>
        ))}
      </ol>
    </>
  );
}

/** The fields of a cron job. What each run does can only be changed as text unless it is a session. */
function CronFields({ form, named }: { form: Form; named?: boolean }) {
  const session = getIn(form.values, ["session"]) !== undefined;
  const inner = { ...form, at: ["session"] };
  return (
    <>
      <Two>
        {named ? <TextField form={form} path="name" label={t("field.name")} required /> : null}
        <TextField form={form} path="cron" label={t("cron.times")} help={t("cron.cronHelp")} required />
        <TextField form={form} path="time_zone" label={t("cron.zone")} help={t("cron.zoneHelp")} />
        <ChoiceField
          form={form}
          path="concurrency"
          label={t("cron.concurrency")}
          help={t("cron.concurrencyHelp")}
          choices={["forbid", "allow", "replace"]}
          none="forbid"
        />
        <ChoiceField
          form={form}
          path="missed"
          label={t("cron.missed")}
          help={t("cron.missedHelp")}
          choices={["skip", "run-once"]}
          none="skip"
        />
        <SpanField
          form={form}
          path="start_deadline_s"
          label={t("cron.deadline")}
          help={t("cron.deadlineHelp")}
        />
      </Two>
      {session ? (
        <>
          <CommandField
            form={inner}
            path="command"
            label={t("newSession.command")}
            help={t("newSession.commandHelp")}
          />
          <GroupField form={inner} />
          <ResourceFields form={inner} />
          <VariablesPart form={inner} />
        </>
      ) : (
        <p className="dim">{t("cron.asText")}</p>
      )}
    </>
  );
}

/** Opens the page of a cron job that was saved. */
function useOpen() {
  const navigate = useNavigate();
  return (made: CronJob) => void navigate({ to: "/cron-jobs/$ref", params: { ref: made.id } });
}

export function NewCronJob() {
  const open = useOpen();
  return (
    <SpecPage<Times, CronJob>
      title={t("cron.create")}
      lead={t("cron.newLead")}
      start={START}
      draft=""
      fields={(form) => <CronFields form={form} named />}
      verb={t("action.create")}
      plan={preview}
      save={(spec) =>
        unwrap(api.POST("/v1/cron-jobs", { body: spec as never })) as unknown as Promise<CronJob>
      }
      done={(made) => t("cron.created", { name: visible(made.name) })}
      saved={open}
    />
  );
}

export function ChangeCronJob() {
  const { ref } = useParams({ from: "/cron-jobs/$ref/change" });
  const job = useQuery({
    ...cronJobQuery(ref),
    queryKey: ["cron-jobs", ref, "change"],
    gcTime: 0,
    refetchInterval: false,
  });
  return (
    <Loaded query={job} height={300} page={visible(ref)}>
      {({ value, etag }) => <Change job={value} etag={etag} />}
    </Loaded>
  );
}

function Change({ job, etag }: { job: CronJob; etag: string }) {
  const open = useOpen();
  // The cron job as it was when the page was opened, whatever is refetched since.
  const [base, setBase] = useState<Latest<Values>>({ value: specOf(job), etag });
  const path = { ref: job.id };
  const latest = async (): Promise<Latest<Values>> => {
    const found = (await unwrapVersioned(
      api.GET("/v1/cron-jobs/{ref}", { params: { path } }),
    )) as unknown as { value: CronJob; etag: string };
    return { value: specOf(found.value), etag: found.etag };
  };
  return (
    <SpecPage<Times, CronJob>
      title={t("cron.changeTitle", { name: visible(job.name) })}
      lead={t("cron.changeLead")}
      start={base.value}
      note={<HiddenValues spec={(base.value.session ?? {}) as Values} />}
      fields={(form) => <CronFields form={form} />}
      verb={t("action.save")}
      plan={preview}
      save={(spec, _, again) =>
        unwrap(
          api.PUT("/v1/cron-jobs/{ref}", {
            params: { path },
            body: spec as never,
            headers: { "If-Match": again ?? base.etag },
          }),
        ) as unknown as Promise<CronJob>
      }
      done={(made) => t("cron.changed", { name: visible(made.name) })}
      saved={open}
      problem={({ error, mine, again, restart }) => (
        <Conflict
          error={error}
          base={base.value}
          mine={mine}
          latest={latest}
          reload={(found) => {
            setBase(found);
            restart(found.value);
          }}
          overwrite={(found) => again(found.etag)}
        />
      )}
    />
  );
}
