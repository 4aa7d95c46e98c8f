import { Button, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { idleQuery } from "@/api/queries";
import { isLive } from "@/api/statuses";
import { type FieldError, fieldsOf } from "@/forms/errors";
import { PairsField, SpanField } from "@/forms/fields";
import { mergePatch, type Values } from "@/forms/values";
import { Confirm, Opener } from "@/parts/actions";
import { FormDialog } from "@/parts/FormDialog";
import { duration, visible } from "@/parts/format";
import { Loaded } from "@/parts/States";
import { t } from "@/texts";
import { SessionChanges } from "./Changes";

const at = (session: Session) => ({ params: { path: { ref: session.id } } });

/** What can be done with a session, beyond stopping and reloading it. */
export function SessionActions({ session }: { session: Session }) {
  return (
    <>
      <SessionChanges session={session} />
      {session.status === "RUNNING" && session.type === "interactive" ? (
        <Opener label={t("session.extend")} dialog={(close) => <Extend session={session} close={close} />} />
      ) : null}
      <Opener label={t("session.rename")} dialog={(close) => <Rename session={session} close={close} />} />
      <Opener label={t("session.labels")} dialog={(close) => <Labels session={session} close={close} />} />
      {session.endpoint ? null : (
        <Button
          size="xs"
          variant="default"
          component={Link}
          to="/new-session"
          search={{ like: session.id } as never}
        >
          {t("session.again")}
        </Button>
      )}
      {isLive(session.status) ? null : <Remove session={session} />}
    </>
  );
}

function Rename({ session, close }: { session: Session; close: () => void }) {
  const navigate = useNavigate();
  const [name, setName] = useState(session.name);
  const [errors, setErrors] = useState<FieldError[]>([]);
  return (
    <FormDialog
      title={t("session.renameTitle", { name: visible(session.name) })}
      verb={t("session.rename")}
      ready={name.trim() !== "" && name !== session.name}
      save={async () => {
        try {
          await unwrap(api.PATCH("/v1/sessions/{ref}", { ...at(session), body: { name: name.trim() } }));
        } catch (error) {
          setErrors(fieldsOf(error, { name }));
          throw error;
        }
        // The address may have the former name, which no longer finds the session.
        await navigate({ to: "/sessions/$ref", params: { ref: session.id }, replace: true });
      }}
      done={t("session.renamed", { former: visible(session.name), name: visible(name.trim()) })}
      close={close}
    >
      <TextInput
        label={t("session.newName")}
        description={t("session.renameHelp")}
        value={name}
        error={errors.find((error) => error.field === "name" && error.sent === name)?.message}
        data-autofocus
        onChange={(event) => setName(event.currentTarget.value)}
      />
    </FormDialog>
  );
}

/** Sends only what changed, so that labels which others change meanwhile stay. */
function Labels({ session, close }: { session: Session; close: () => void }) {
  const [base] = useState<Values>(session.user_labels ?? {});
  const [values, setValues] = useState<Values>({ user_labels: base });
  const [errors, setErrors] = useState<FieldError[]>([]);
  const patch = mergePatch(
    base,
    (values.user_labels ?? {}) as Values,
  ) as Schemas["SessionPatch"]["user_labels"];
  return (
    <FormDialog
      title={t("session.labelsTitle", { name: visible(session.name) })}
      verb={t("action.save")}
      ready={Object.keys(patch ?? {}).length > 0}
      save={() =>
        unwrap(api.PATCH("/v1/sessions/{ref}", { ...at(session), body: { user_labels: patch ?? {} } })).catch(
          (error) => {
            setErrors(fieldsOf(error, values));
            throw error;
          },
        )
      }
      done={t("session.labelled", { name: visible(session.name) })}
      close={close}
    >
      <PairsField
        form={{ values, set: setValues, errors }}
        path="user_labels"
        label={t("form.userLabels")}
        help={t("form.userLabelsHelp")}
        add={t("form.addLabel")}
      />
    </FormDialog>
  );
}

/** Keeps a session that would end because it is idle. */
function Extend({ session, close }: { session: Session; close: () => void }) {
  const idle = useQuery({ ...idleQuery(session.id), gcTime: 0 });
  const [values, setValues] = useState<Values>({});
  const [errors, setErrors] = useState<FieldError[]>([]);
  return (
    <FormDialog
      title={t("session.extendTitle", { name: visible(session.name) })}
      verb={t("session.extend")}
      ready={idle.data !== undefined && idle.data.criteria.length > 0}
      save={() =>
        unwrap(
          api.POST("/v1/sessions/{ref}/extend", {
            ...at(session),
            body: { seconds: (values.seconds ?? null) as never },
          }),
        ).catch((error) => {
          setErrors(fieldsOf(error, values));
          throw error;
        })
      }
      done={t("session.extended", { name: visible(session.name) })}
      close={close}
    >
      <Loaded query={idle} height={40}>
        {(found) => <Text size="sm">{idleText(found)}</Text>}
      </Loaded>
      <SpanField
        form={{ values, set: setValues, errors }}
        path="seconds"
        label={t("session.extendBy")}
        help={t("session.extendHelp", { most: duration((idle.data?.max_extension_s ?? 0) * 1000) })}
      />
    </FormDialog>
  );
}

function idleText(idle: Schemas["IdleView"]): string {
  if (idle.criteria.length === 0) {
    return t("session.neverIdle");
  }
  const used = t("session.extensions", { used: idle.extensions ?? 0, most: idle.max_extensions });
  return idle.ends_in_s === null || idle.ends_in_s === undefined
    ? `${t("session.idleLater")} ${used}`
    : `${t("session.idleIn", { duration: duration(Math.max(0, idle.ends_in_s) * 1000), criterion: idle.criterion ?? "" })} ${used}`;
}

function Remove({ session }: { session: Session }) {
  const navigate = useNavigate();
  return (
    <Opener
      label={t("session.remove")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("session.removeTitle", { name: visible(session.name) })}
          consequences={[t("session.removeText"), t("session.removeUsage")]}
          verb={t("session.remove")}
          act={async () => {
            await unwrap(api.DELETE("/v1/sessions/{ref}", at(session)));
            await navigate({ to: "/sessions" });
          }}
          done={t("session.removed", { name: visible(session.name) })}
          close={close}
        />
      )}
    />
  );
}
