import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, type Endpoint, unwrap } from "@/api/client";
import { HiddenValues, PlanResult } from "@/forms/PlanResult";
import { again, type Plan, planReplica } from "@/forms/plans";
import { SpecPage } from "@/forms/SpecPage";
import type { Values } from "@/forms/values";
import { visible } from "@/parts/format";
import { Loaded } from "@/parts/States";
import { t } from "@/texts";
import { EndpointFields } from "./EndpointFields";

const START: Values = {
  engine: "vllm",
  replicas: 1,
  resources: { cpu: 1, mem: "2GiB", "cuda.device": 1 },
};

export function NewEndpoint() {
  const { like } = useSearch({ from: "/new-endpoint" });
  return like === undefined ? <Start spec={START} /> : <Like name={like} key={like} />;
}

function Like({ name }: { name: string }) {
  const endpoint = useQuery({
    queryKey: ["endpoints", name, "spec"],
    queryFn: () => unwrap(api.GET("/v1/endpoints/{name}", { params: { path: { name } } })),
  });
  return (
    <Loaded query={endpoint} height={300}>
      {(found) => <Start spec={again(found.spec ?? {})} lead={t("form.like", { name: visible(name) })} />}
    </Loaded>
  );
}

function Start({ spec, lead }: { spec: Values; lead?: string }) {
  const navigate = useNavigate();
  return (
    <SpecPage<Plan, Endpoint>
      title={t("endpoints.create")}
      lead={lead ?? t("newEndpoint.lead")}
      start={spec}
      note={<HiddenValues spec={spec} />}
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
