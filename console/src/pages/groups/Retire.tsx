import { Button, Checkbox } from "@mantine/core";
import { useState } from "react";
import { api, type Group, unwrap } from "@/api/client";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

/** Retires a group, or brings a retired one back. A group in use is refused, unless it is to be drained. */
export function Retire({ group, etag }: { group: Group; etag: string }) {
  const restore = useAction(
    () => unwrap(api.POST("/v1/groups", { body: { name: group.name, options: group.options } })),
    () => t("group.restored", { name: group.name }),
  );
  if (group.retired_at) {
    return (
      <>
        <Button size="xs" variant="default" loading={restore.isPending} onClick={() => restore.mutate()}>
          {t("group.restore")}
        </Button>
        {restore.error ? <Problem error={restore.error} /> : null}
      </>
    );
  }
  return (
    <Opener
      label={t("group.retire")}
      danger
      dialog={(close) => <RetireDialog group={group} etag={etag} close={close} />}
    />
  );
}

function RetireDialog({ group, etag, close }: { group: Group; etag: string; close: () => void }) {
  const [drain, setDrain] = useState(false);
  const { name, agents, running, pending } = group;
  return (
    <Confirm
      title={t("group.retireTitle", { name })}
      consequences={[
        t("group.retireNew"),
        t("group.retireLive", { agents, running, pending }),
        t(drain ? "group.retireDrains" : "group.retireRefused"),
      ]}
      verb={t("group.retire")}
      retype={name}
      act={() =>
        unwrap(
          api.DELETE("/v1/groups/{name}", {
            params: { path: { name }, query: { drain } },
            headers: { "If-Match": etag },
          }),
        )
      }
      done={t("group.retired", { name })}
      close={close}
    >
      <Checkbox
        label={t("group.drain")}
        checked={drain}
        onChange={(event) => setDrain(event.currentTarget.checked)}
      />
    </Confirm>
  );
}
