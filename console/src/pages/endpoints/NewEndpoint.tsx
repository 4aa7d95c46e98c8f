import { Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api, type Endpoint, unwrap } from "@/api/client";
import { HiddenValues, PlanResult } from "@/forms/PlanResult";
import { again, type Plan, planReplica } from "@/forms/plans";
import { SpecPage } from "@/forms/SpecPage";
import { brief, type Values } from "@/forms/values";
import { visible } from "@/parts/format";
import { Loaded } from "@/parts/States";
import { t } from "@/texts";
import { fitQuery } from "./catalogFit";
import { EndpointFields } from "./EndpointFields";

const START: Values = {
  engine: "vllm",
  replicas: 1,
  resources: { cpu: 1, mem: "2GiB", "cuda.device": 1 },
};

export function NewEndpoint() {
  const { like, model, group, context } = useSearch({ from: "/new-endpoint" });
  if (model !== undefined) {
    return <OfCatalog model={model} group={group ?? "default"} context={context ?? 0} key={model} />;
  }
  return like === undefined ? <Start spec={START} /> : <Like name={like} key={like} />;
}

/** With the resources and arguments that the model needs in the group. */
function OfCatalog({ model, group, context }: { model: string; group: string; context: number }) {
  // Asked once: later answers must not replace what was typed.
  const fit = useQuery({
    ...fitQuery(model, group, context),
    queryKey: ["new-endpoint", model, group, context],
    gcTime: 0,
  });
  return (
    <Loaded query={fit} height={300}>
      {({ spec, problem, next_step, model: found }) => (
        <Start
          spec={
            (spec as Values | null) ?? {
              ...START,
              engine: found.engine,
              model: found.id,
              resource_group: group,
              ...brief({ args: found.args }),
            }
          }
          lead={t("newEndpoint.ofModel", { model: visible(found.id) })}
          note={
            problem || found.needs_token ? (
              <Stack gap={4}>
                {problem ? (
                  <Text size="sm" className="wrap">
                    {visible(problem)}. {visible(next_step ?? "")}
                  </Text>
                ) : null}
                {found.needs_token ? <Text size="sm">{t("catalog.token")}</Text> : null}
              </Stack>
            ) : null
          }
        />
      )}
    </Loaded>
  );
}

function Like({ name }: { name: string }) {
  const endpoint = useQuery({
    queryKey: ["endpoints", name, "spec"],
    queryFn: () => unwrap(api.GET("/v1/endpoints/{name}", { params: { path: { name } } })),
  });
  return (
    <Loaded query={endpoint} height={300} page={t("endpoints.create")}>
      {(found) => <Start spec={again(found.spec ?? {})} lead={t("form.like", { name: visible(name) })} />}
    </Loaded>
  );
}

function Start({ spec, lead, note }: { spec: Values; lead?: string; note?: ReactNode }) {
  const navigate = useNavigate();
  return (
    <SpecPage<Plan, Endpoint>
      title={t("endpoints.create")}
      lead={lead ?? t("newEndpoint.lead")}
      start={spec}
      draft=""
      note={
        <>
          {note}
          <HiddenValues spec={spec} />
        </>
      }
      fields={(form) => <EndpointFields form={form} />}
      verb={t("action.create")}
      plan={{
        title: t("newEndpoint.where"),
        ask: planReplica,
        show: (plan) => <PlanResult plan={plan} />,
      }}
      save={(sent, key) =>
        unwrap(api.POST("/v1/endpoints", { body: sent as never, headers: { "Idempotency-Key": key } }))
      }
      done={(made) => t("newEndpoint.created", { name: visible(made.name) })}
      saved={(made) => void navigate({ to: "/endpoints/$name", params: { name: made.name } })}
    />
  );
}
