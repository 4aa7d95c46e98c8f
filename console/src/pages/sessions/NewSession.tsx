import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { sessionQuery, templateQuery, templatesQuery } from "@/api/queries";
import { HiddenValues, PlanResult } from "@/forms/PlanResult";
import { again, planSession, planTemplate } from "@/forms/plans";
import { SpecPage } from "@/forms/SpecPage";
import type { Values } from "@/forms/values";
import { visible } from "@/parts/format";
import { Loaded } from "@/parts/States";
import { t } from "@/texts";
import { ParameterFields } from "./ParameterFields";
import { SessionFields } from "./SessionFields";

/** Starts a session: from the form, from a template, or like another session. */
export function NewSession() {
  const { group, like, template } = useSearch({ from: "/new-session" });
  if (template !== undefined) {
    return <FromTemplate name={template} key={template} />;
  }
  if (like !== undefined) {
    return <Like id={like} key={like} />;
  }
  return (
    <Start
      key={group ?? ""}
      spec={{
        type: "batch",
        ...(group ? { resource_group: group } : {}),
        resources: { cpu: 1, mem: "1GiB" },
      }}
    />
  );
}

function Like({ id }: { id: string }) {
  const session = useQuery(sessionQuery(id));
  return (
    <Loaded query={session} height={300} page={t("sessions.create")}>
      {(found) => {
        const spec = again(found.spec);
        return (
          <Start spec={{ type: "batch", ...spec }} lead={t("form.like", { name: visible(found.name) })} />
        );
      }}
    </Loaded>
  );
}

/** What opens the page of a session that was created. */
function useOpen() {
  const navigate = useNavigate();
  return (made: Session) => void navigate({ to: "/sessions/$ref", params: { ref: made.id } });
}

const planned = (ask: (spec: Values) => ReturnType<typeof planSession>) => ({
  title: t("newSession.where"),
  ask,
  show: (plan: Awaited<ReturnType<typeof planSession>>) => <PlanResult plan={plan} />,
});

function Start({ spec, lead }: { spec: Values; lead?: string }) {
  const open = useOpen();
  return (
    <SpecPage
      title={t("sessions.create")}
      lead={lead ?? t("newSession.lead")}
      start={spec}
      draft=""
      note={
        <>
          {lead === undefined ? <TemplateChoice /> : null}
          <HiddenValues spec={spec} />
        </>
      }
      fields={(form) => <SessionFields form={form} />}
      verb={t("action.create")}
      plan={planned(planSession)}
      save={(sent, key) =>
        unwrap(api.POST("/v1/sessions", { body: sent as never, headers: { "Idempotency-Key": key } }))
      }
      done={(made) => t("newSession.created", { name: visible(made.name) })}
      saved={open}
    />
  );
}

function TemplateChoice() {
  const navigate = useNavigate();
  const templates = useQuery({ ...templatesQuery, retry: false });
  return templates.data?.length ? (
    <Select
      label={t("form.fromTemplate")}
      placeholder={t("form.noTemplate")}
      searchable
      data={[...new Set(templates.data.map((one) => one.name))]}
      value={null}
      onChange={(name) => name && void navigate({ to: "/new-session", search: { template: name } })}
    />
  ) : null;
}

function FromTemplate({ name }: { name: string }) {
  const template = useQuery(templateQuery(name));
  return (
    <Loaded query={template} height={300} page={t("sessions.create")}>
      {({ value }) => <TemplateStart template={value} />}
    </Loaded>
  );
}

function TemplateStart({ template }: { template: Schemas["TemplateView"] }) {
  const open = useOpen();
  const { parameters, spec } = template.template;
  return (
    <SpecPage
      title={t("sessions.create")}
      lead={t("form.likeTemplate", { name: visible(template.name), version: template.version })}
      start={{ version: template.version }}
      draft={String(template.version)}
      fields={(form) => (
        <>
          <ParameterFields
            form={form}
            parameters={(parameters ?? {}) as Record<string, Schemas["Parameter"]>}
          />
          <SessionFields form={{ ...form, at: ["overrides"], base: (spec ?? {}) as Values }} />
        </>
      )}
      verb={t("action.create")}
      plan={planned((run) => planTemplate(template.name, run))}
      save={(sent, key) =>
        unwrap(
          api.POST("/v1/templates/{name}/sessions", {
            params: { path: { name: template.name } },
            body: sent as never,
            headers: { "Idempotency-Key": key },
          }),
        )
      }
      done={(made) => t("newSession.created", { name: visible(made.name) })}
      saved={open}
    />
  );
}
