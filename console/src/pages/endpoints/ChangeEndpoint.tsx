import { JsonInput, Text } from "@mantine/core";
import { useState } from "react";
import { api, type Endpoint, unwrap, unwrapVersioned } from "@/api/client";
import { Conflict, type Latest } from "@/parts/Conflict";
import { FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { t } from "@/texts";

type Spec = Record<string, unknown>;

function parsed(text: string): Spec | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Spec) : null;
  } catch {
    return null;
  }
}

const draft = (spec: Spec) =>
  JSON.stringify({ args: spec.args ?? [], env: {}, resources: spec.resources ?? {} }, null, 2);

async function readSpec(name: string): Promise<Latest<Spec>> {
  const { value, etag } = await unwrapVersioned(
    api.GET("/v1/endpoints/{name}", { params: { path: { name } } }),
  );
  return { value: (value.spec ?? {}) as Spec, etag };
}

/** Changes an endpoint with a merge patch, relative to its state when the dialog was opened. */
export function ChangeEndpoint({
  endpoint,
  etag,
  close,
}: {
  endpoint: Endpoint;
  etag: string;
  close: () => void;
}) {
  const { name } = endpoint;
  const [base, setBase] = useState<Latest<Spec>>({ value: (endpoint.spec ?? {}) as Spec, etag });
  const [text, setText] = useState(() => draft(base.value));
  const patch = parsed(text);
  const save = (version = base.etag) =>
    unwrap(
      api.PATCH("/v1/endpoints/{name}", {
        params: { path: { name } },
        body: (patch ?? {}) as never,
        headers: { "If-Match": version },
      }),
    );
  return (
    <FormDialog
      title={t("endpoint.changeTitle", { name: visible(name) })}
      size="lg"
      verb={t("endpoint.rollOut")}
      ready={patch !== null}
      save={save}
      done={t("endpoint.rolloutBegan", { name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={base.value}
          mine={{ ...base.value, ...patch }}
          latest={() => readSpec(name)}
          reload={(latest) => {
            setBase(latest);
            setText(draft(latest.value));
            reset();
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    >
      <Text size="sm">{t("endpoint.changeText", { count: endpoint.replicas })}</Text>
      <JsonInput
        label={t("endpoint.patch")}
        value={text}
        onChange={setText}
        autosize
        minRows={8}
        maxRows={20}
        error={patch ? undefined : t("endpoint.notJson")}
        data-autofocus
      />
    </FormDialog>
  );
}
