import { NumberInput } from "@mantine/core";
import { useState } from "react";
import { api, type Endpoint, etagOf, unwrap, unwrapVersioned } from "@/api/client";
import { Confirm, Opener } from "@/parts/actions";
import { Conflict, type Latest } from "@/parts/Conflict";
import { FormDialog } from "@/parts/FormDialog";
import { reasonText, visible } from "@/parts/format";
import { Only } from "@/parts/Only";
import { t } from "@/texts";

const SMALLEST = 1;
const LARGEST = 99;

/** A rollout that is not complete: what it has done, and how it is ended. */
export function RolloutBanner({ endpoint }: { endpoint: Endpoint }) {
  const rollout = endpoint.rollout;
  const text = textOf(endpoint);
  const tried = rollout?.state === "canary";
  // The dialogs have the same place without a rollout: one that is open then stays, and shows the manager's answer.
  return (
    <div className={text ? "banner" : "as-is"} role={text ? "status" : undefined}>
      {text ? (
        <span className="wrap">
          {text} {rollout?.detail ? visible(rollout.detail) : ""}
        </span>
      ) : null}
      <Only may="change">
        <Promote endpoint={endpoint} gone={!tried} />
        <RollBack name={endpoint.name} gone={!text || rollout?.state === "failed" || rollout?.newest === 1} />
      </Only>
    </div>
  );
}

function textOf(endpoint: Endpoint): string {
  const rollout = endpoint.rollout;
  if (!rollout || rollout.state === "complete" || rollout.state === "waiting") {
    return "";
  }
  const { revision, ready, old, updated } = rollout;
  if (rollout.state === "failed") {
    return t("endpoint.rolledBack", {
      revision: rollout.rolled_back ?? rollout.newest,
      reason: reasonText(rollout.reason ?? ""),
    });
  }
  return rollout.canary
    ? `${t("endpoint.canary", { revision, percent: rollout.canary })} ${t("endpoint.canaryReplicas", { ready, updated, old })}`
    : t("endpoint.rolling", { revision, ready, replicas: endpoint.replicas, old });
}

function Promote({ endpoint, gone }: { endpoint: Endpoint; gone: boolean }) {
  const { name } = endpoint;
  const revision = endpoint.rollout?.revision ?? endpoint.revision ?? 1;
  return (
    <Opener
      label={t("endpoint.promote")}
      variant="filled"
      gone={gone}
      dialog={(close) => (
        <Confirm
          title={t("endpoint.promoteTitle", { revision })}
          consequences={[
            t("endpoint.promoteRequests", { name: visible(name), revision }),
            t("endpoint.promoteReplicas", { count: endpoint.rollout?.old ?? 0 }),
          ]}
          verb={t("endpoint.promote")}
          safe
          act={() => unwrap(api.POST("/v1/endpoints/{name}/rollout/promote", { params: { path: { name } } }))}
          done={t("endpoint.promoted")}
          close={close}
        />
      )}
    />
  );
}

/** Ends a rollout or a canary: back to the revision that was served before. */
function RollBack({ name, gone }: { name: string; gone: boolean }) {
  return (
    <Opener
      label={t("endpoint.rollBack")}
      gone={gone}
      dialog={(close) => (
        <Confirm
          title={t("endpoint.rollBackTitle", { name: visible(name) })}
          consequences={[t("endpoint.rollBackText")]}
          verb={t("endpoint.rollBack")}
          act={() =>
            unwrap(api.POST("/v1/endpoints/{name}/rollout/undo", { params: { path: { name } }, body: {} }))
          }
          done={t("endpoint.rolledBackNow", { name: visible(name) })}
          close={close}
        />
      )}
    />
  );
}

const shareOf = (endpoint: Endpoint) =>
  (endpoint.spec as { rollout?: { canary?: number } } | null | undefined)?.rollout?.canary ?? 0;

async function read(name: string): Promise<Latest<{ canary: number }> & { endpoint: Endpoint }> {
  const { value, etag } = await unwrapVersioned(
    api.GET("/v1/endpoints/{name}", { params: { path: { name } } }),
  );
  return { value: { canary: shareOf(value) }, etag, endpoint: value };
}

/** The share of the requests that the canary gets: the one that is tried now, and those of later revisions. */
export function CanaryShare({ endpoint, close }: { endpoint: Endpoint; close: () => void }) {
  const { name } = endpoint;
  const [base, setBase] = useState(endpoint);
  const [share, setShare] = useState<number | string>(shareOf(endpoint) || 10);
  const percent = Number(share);
  const allowed = share !== "" && Number.isInteger(percent) && percent >= SMALLEST && percent <= LARGEST;
  const revision = base.rollout?.canary ? base.rollout.revision : null;
  return (
    <FormDialog
      title={t("endpoint.canaryTitle", { name: visible(name) })}
      verb={t("action.save")}
      ready={allowed}
      save={(again) =>
        unwrap(
          api.PATCH("/v1/endpoints/{name}", {
            params: { path: { name } },
            body: { rollout: { canary: percent } },
            headers: { "If-Match": again ?? etagOf(base) },
          }),
        )
      }
      done={
        revision === null
          ? t("endpoint.canaryNext", { percent })
          : t("endpoint.canaryNow", { revision, percent })
      }
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={{ canary: shareOf(base) }}
          mine={{ canary: percent }}
          latest={() => read(name)}
          reload={(latest) => {
            setBase(latest.endpoint);
            setShare(latest.value.canary || 10);
            reset();
          }}
          overwrite={(latest) => {
            setBase(latest.endpoint);
            again(latest.etag);
          }}
        />
      )}
    >
      <NumberInput
        label={t("endpoint.canaryShare")}
        description={
          revision === null ? t("endpoint.canaryNextHelp") : t("endpoint.canaryNowHelp", { revision })
        }
        error={allowed ? undefined : t("endpoint.canaryRange", { min: SMALLEST, max: LARGEST })}
        min={SMALLEST}
        max={LARGEST}
        allowDecimal={false}
        clampBehavior="none"
        value={share}
        data-autofocus
        onChange={setShare}
      />
    </FormDialog>
  );
}
