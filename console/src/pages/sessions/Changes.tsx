import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { groupsQuery } from "@/api/queries";
import { isLive } from "@/api/statuses";
import { type FieldError, fieldsOf } from "@/forms/errors";
import { ChoiceField, NumberField, SpanField } from "@/forms/fields";
import { mergePatch, type Values } from "@/forms/values";
import { Confirm, Opener } from "@/parts/actions";
import { FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { t } from "@/texts";

const at = (session: Session) => ({ params: { path: { ref: session.id } } });

type Verb = "hold" | "release" | "requeue" | "suspend" | "resume";

const hold = (held: boolean) => (session: Session) =>
  unwrap(api.PATCH("/v1/sessions/{ref}", { ...at(session), body: { held } as Schemas["SessionPatch"] }));

/** What a person can let a session do, apart from its end. */
export const VERBS: Record<
  Verb,
  { applies: (session: Session) => boolean; act: (session: Session) => Promise<unknown> }
> = {
  hold: {
    applies: (session) => waits(session) && !session.held,
    act: hold(true),
  },
  release: {
    applies: (session) => waits(session) && Boolean(session.held),
    act: hold(false),
  },
  requeue: {
    applies: (session) =>
      session.type === "batch" &&
      isLive(session.status) &&
      session.status !== "PENDING" &&
      session.status !== "TERMINATING",
    act: (session) => unwrap(api.POST("/v1/sessions/{ref}/requeue", at(session))),
  },
  suspend: {
    applies: (session) => runs(session) && !session.suspended,
    act: (session) => unwrap(api.POST("/v1/sessions/{ref}/suspend", at(session))),
  },
  resume: {
    applies: (session) => runs(session) && Boolean(session.suspended),
    act: (session) => unwrap(api.POST("/v1/sessions/{ref}/resume", at(session))),
  },
};

const waits = (session: Session) =>
  session.status === "PENDING" && !session.endpoint && !session.adopted_from;

const runs = (session: Session) =>
  session.status === "RUNNING" && !session.endpoint && ["batch", "interactive"].includes(session.type);

/** The changes of a session that waits or runs. */
export function SessionChanges({ session }: { session: Session }) {
  return (
    <>
      {waits(session) || runs(session) ? (
        <Opener label={t("session.change")} dialog={(close) => <Change session={session} close={close} />} />
      ) : null}
      {(Object.keys(VERBS) as Verb[])
        .filter((verb) => VERBS[verb].applies(session))
        .map((verb) => (
          <Opener
            key={verb}
            label={t(`session.verb.${verb}`)}
            dialog={(close) => (
              <Confirm
                title={`${t(`session.verb.${verb}`)}: ${visible(session.name)}`}
                consequences={[t(`session.consequence.${verb}`)]}
                verb={t(`session.verb.${verb}`)}
                safe={verb !== "requeue"}
                act={() => VERBS[verb].act(session)}
                done={t(`session.did.${verb}`, { name: visible(session.name) })}
                close={close}
              />
            )}
          />
        ))}
    </>
  );
}

/** Sends only what was changed here, so that what others change meanwhile stays. */
function Change({ session, close }: { session: Session; close: () => void }) {
  const pending = session.status === "PENDING";
  const groups = useQuery({ ...groupsQuery, enabled: pending });
  const limits = [session.spec.timeout_s, session.spec.max_lifetime_s].filter(
    (limit): limit is number => typeof limit === "number",
  );
  const [base] = useState<Values>({
    priority: session.priority,
    resource_group: session.resource_group,
    time_limit_s: limits.length > 0 ? Math.min(...limits) : undefined,
  });
  const [values, setValues] = useState<Values>(base);
  const [errors, setErrors] = useState<FieldError[]>([]);
  const patch = mergePatch(base, values) as Schemas["SessionPatch"];
  const form = { values, set: setValues, errors };
  return (
    <FormDialog
      title={t("session.changeTitle", { name: visible(session.name) })}
      verb={t("action.save")}
      ready={Object.values(patch).some((value) => value !== null)}
      save={() =>
        unwrap(api.PATCH("/v1/sessions/{ref}", { ...at(session), body: patch })).catch((error) => {
          setErrors(fieldsOf(error, values));
          throw error;
        })
      }
      done={t("session.changed", { name: visible(session.name) })}
      close={close}
    >
      {pending ? (
        <>
          <NumberField
            form={form}
            path="priority"
            label={t("session.priority")}
            help={t("session.priorityHelp")}
            max={100}
          />
          <ChoiceField
            form={form}
            path="resource_group"
            label={t("field.group")}
            choices={groups.data?.map((group) => group.name) ?? []}
          />
        </>
      ) : null}
      <SpanField
        form={form}
        path="time_limit_s"
        label={t("session.timeLimit")}
        help={t(pending ? "session.timeLimitHelp" : "session.timeLimitStarted")}
      />
    </FormDialog>
  );
}
