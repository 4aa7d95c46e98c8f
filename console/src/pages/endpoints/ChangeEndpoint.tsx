import { Button, Group, JsonInput, Modal, Stack, Text } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { api, type Endpoint, unwrap } from "@/api/client";
import { Conflict } from "@/pages/groups/GroupForm";
import { announce, useAction } from "@/parts/actions";
import { visible } from "@/parts/format";
import { t } from "@/texts";

function parsed(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** A change of an endpoint as a merge patch. It is refused if somebody changed the endpoint meanwhile. */
export function ChangeEndpoint({
  endpoint,
  etag,
  close,
}: {
  endpoint: Endpoint;
  etag: string;
  close: () => void;
}) {
  const spec = endpoint.spec as Record<string, unknown> | null;
  const [text, setText] = useState(() =>
    JSON.stringify({ args: spec?.args ?? [], env: {}, resources: spec?.resources ?? {} }, null, 2),
  );
  const patch = parsed(text);
  const save = useAction(() =>
    unwrap(
      api.PATCH("/v1/endpoints/{name}", {
        params: { path: { name: endpoint.name } },
        body: (patch ?? {}) as never,
        headers: { "If-Match": etag },
      }),
    ),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate(undefined, {
      onSuccess: () => {
        announce(t("endpoint.rolloutBegan", { name: endpoint.name }));
        close();
      },
    });
  };
  return (
    <Modal
      opened
      onClose={close}
      size="lg"
      title={t("endpoint.changeTitle", { name: visible(endpoint.name) })}
      closeButtonProps={{ "aria-label": t("action.close") }}
    >
      <form onSubmit={submit}>
        <Stack gap="md">
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
          {save.error ? <Conflict error={save.error} /> : null}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
              {t("action.cancel")}
            </Button>
            <Button type="submit" loading={save.isPending} disabled={!patch}>
              {t("endpoint.rollOut")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
