import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Endpoint, unwrap, unwrapVersioned } from "@/api/client";
import { PlanResult } from "@/forms/PlanResult";
import { type Plan, planReplica, withoutHidden } from "@/forms/plans";
import { SpecPage } from "@/forms/SpecPage";
import { brief, mergePatch, type Values } from "@/forms/values";
import { Conflict, type Latest } from "@/parts/Conflict";
import { visible } from "@/parts/format";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { EndpointFields } from "./EndpointFields";

/** What can be changed: the specification, with the number of replicas that is desired now. */
const changeable = (endpoint: Endpoint): Values => {
  const { name: _, ...spec } = brief(endpoint.spec ?? {});
  return {
    ...spec,
    replicas: endpoint.replicas,
    ...brief({ shared_with: endpoint.shared_with, user_labels: endpoint.user_labels }),
  };
};

async function read(name: string): Promise<Latest<Values> & { endpoint: Endpoint }> {
  const { value, etag } = await unwrapVersioned(
    api.GET("/v1/endpoints/{name}", { params: { path: { name } } }),
  );
  return { value: changeable(value), etag, endpoint: value };
}

export function ChangeEndpoint() {
  const { name } = useParams({ from: "/endpoints/$name/change" });
  const endpoint = useQuery({
    queryKey: ["endpoints", name, "change"],
    queryFn: () => read(name),
    // Every visit starts from the current state.
    gcTime: 0,
  });
  return (
    <Loaded query={endpoint} height={300} page={visible(name)}>
      {(found) =>
        found.endpoint.spec ? (
          <Change name={name} found={found} />
        ) : (
          <Empty title={visible(name)}>{t("endpoint.notYours")}</Empty>
        )
      }
    </Loaded>
  );
}

/** Sends what changed since the page was opened, as a merge patch. */
function Change({ name, found }: { name: string; found: Latest<Values> & { endpoint: Endpoint } }) {
  const navigate = useNavigate();
  const [base, setBase] = useState<Latest<Values>>(found);
  return (
    <SpecPage<Plan, Endpoint>
      title={t("endpoint.changeTitle", { name: visible(name) })}
      lead={t("endpoint.changeText", { count: found.endpoint.replicas })}
      start={base.value}
      draft={base.etag}
      fields={(form) => <EndpointFields form={form} named />}
      note={<Text size="sm">{t("endpoint.changeKeeps")}</Text>}
      verb={t("endpoint.rollOut")}
      plan={{
        title: t("newEndpoint.where"),
        ask: (spec) => planReplica(withoutHidden(spec)),
        show: (plan) => <PlanResult plan={plan} />,
      }}
      save={(spec, _, again) =>
        unwrap(
          api.PATCH("/v1/endpoints/{name}", {
            params: { path: { name } },
            body: mergePatch(base.value, spec) as never,
            headers: { "If-Match": again ?? base.etag },
          }),
        )
      }
      done={() => t("endpoint.rolloutBegan", { name: visible(name) })}
      saved={() => void navigate({ to: "/endpoints/$name", params: { name } })}
      problem={({ error, mine, again, restart }) => (
        <Conflict
          error={error}
          base={base.value}
          mine={mine}
          latest={() => read(name)}
          reload={(latest) => {
            setBase(latest);
            restart(latest.value);
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    />
  );
}
