import { Button, NumberInput, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Suspense, useState } from "react";
import { ApiProblem, api, type Endpoint, type Schemas, unwrap, unwrapVersioned } from "@/api/client";
import { revisionsQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { reasonText, visible } from "@/parts/format";
import { lazy } from "@/parts/lazy";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded, Problem } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { Call } from "./Call";
import { CanaryShare, RolloutBanner } from "./Rollout";

const EndpointLoad = lazy(() => import("./EndpointLoad"));
const Chat = lazy(() => import("./Chat"));

type Replica = Schemas["ReplicaView"];
type ReplicaState = Endpoint["status"] | "draining" | "";
type Revision = Schemas["RevisionView"];

const MOST_REPLICAS = 1000;

export function EndpointPage() {
  const { name } = useParams({ from: "/endpoints/$name" });
  const query = useQuery({
    queryKey: ["endpoints", name],
    queryFn: () => unwrapVersioned(api.GET("/v1/endpoints/{name}", { params: { path: { name } } })),
  });
  return (
    <Loaded query={query} height={300} page={visible(name)}>
      {({ value: endpoint }) => (
        <Page
          title={visible(endpoint.name)}
          lead={
            <>
              <StatusText status={endpoint.status} /> · {visible(endpoint.project ?? "")}/
              {visible(endpoint.user ?? "")}
            </>
          }
          may="change"
          actions={<Actions endpoint={endpoint} />}
        >
          {query.error instanceof ApiProblem && query.error.status === 404 ? (
            <Problem error={query.error} />
          ) : null}
          <RolloutBanner endpoint={endpoint} />
          <Section title={t("endpoint.state")}>
            <EndpointFacts endpoint={endpoint} />
          </Section>
          <Suspense fallback={<div className="chart-space" />}>
            <EndpointLoad name={endpoint.name} />
          </Suspense>
          <Section title={t("endpoints.replicas")}>
            <Replicas replicas={endpoint.sessions ?? []} />
          </Section>
          <Tabs defaultValue="chat" keepMounted={false} className="section">
            <Tabs.List mb="md">
              <Tabs.Tab value="chat">{t("endpoint.try")}</Tabs.Tab>
              <Tabs.Tab value="call">{t("endpoint.call")}</Tabs.Tab>
              <Tabs.Tab value="revisions">{t("endpoint.revisions")}</Tabs.Tab>
            </Tabs.List>
            <Tabs.Panel value="chat">
              <Suspense>
                <Chat model={endpoint.name} ready={endpoint.ready > 0} />
              </Suspense>
            </Tabs.Panel>
            <Tabs.Panel value="call">
              <Call model={endpoint.name} />
            </Tabs.Panel>
            <Tabs.Panel value="revisions">
              <Revisions endpoint={endpoint} />
            </Tabs.Panel>
          </Tabs>
        </Page>
      )}
    </Loaded>
  );
}

function Actions({ endpoint }: { endpoint: Endpoint }) {
  const navigate = useNavigate();
  const params = { path: { name: endpoint.name } };
  return (
    <>
      <Opener label={t("endpoint.scale")} dialog={(close) => <ScaleTo endpoint={endpoint} close={close} />} />
      {endpoint.spec ? (
        <>
          <Opener
            label={t("endpoint.canaryOpen")}
            dialog={(close) => <CanaryShare endpoint={endpoint} close={close} />}
          />
          <Button
            size="xs"
            variant="default"
            component={Link}
            to="/endpoints/$name/change"
            params={{ name: endpoint.name } as never}
          >
            {t("endpoint.change")}
          </Button>
          <Button
            size="xs"
            variant="default"
            component={Link}
            to="/new-endpoint"
            search={{ like: endpoint.name } as never}
          >
            {t("endpoint.again")}
          </Button>
        </>
      ) : (
        <Button size="xs" variant="default" disabled title={t("endpoint.notYours")}>
          {t("endpoint.change")}
        </Button>
      )}
      <Opener
        label={t("endpoint.delete")}
        danger
        dialog={(close) => (
          <Confirm
            title={t("endpoint.deleteTitle", { name: visible(endpoint.name) })}
            consequences={[
              t("endpoint.deleteStops", { count: endpoint.replicas }),
              t("endpoint.deleteRequests", { count: (endpoint.running ?? 0) + (endpoint.waiting ?? 0) }),
              t("endpoint.deleteName"),
            ]}
            verb={t("endpoint.delete")}
            retype={endpoint.name}
            act={async () => {
              await unwrap(api.DELETE("/v1/endpoints/{name}", { params }));
              await navigate({ to: "/endpoints" });
            }}
            done={t("endpoint.deleted", { name: visible(endpoint.name) })}
            close={close}
          />
        )}
      />
    </>
  );
}

function ScaleTo({ endpoint, close }: { endpoint: Endpoint; close: () => void }) {
  const { name } = endpoint;
  const [value, setValue] = useState<number | string>(endpoint.replicas);
  const replicas = Number(value);
  const allowed = value !== "" && Number.isInteger(replicas) && replicas >= 0 && replicas <= MOST_REPLICAS;
  const fewer = endpoint.replicas - replicas;
  return (
    <FormDialog
      title={t("endpoint.scaleTitle", { name: visible(name) })}
      verb={t("endpoint.scale")}
      ready={allowed}
      save={() =>
        unwrap(api.POST("/v1/endpoints/{name}/scale", { params: { path: { name } }, body: { replicas } }))
      }
      done={t("endpoint.scaled", { name: visible(name), count: replicas })}
      close={close}
    >
      <NumberInput
        label={t("endpoints.replicas")}
        description={
          allowed && replicas === 0
            ? t("endpoint.sleeps")
            : fewer > 0 && allowed
              ? t("endpoint.fewer", { count: fewer })
              : t("endpoint.more")
        }
        error={allowed ? undefined : t("endpoint.scaleRange", { max: MOST_REPLICAS })}
        min={0}
        max={MOST_REPLICAS}
        allowDecimal={false}
        clampBehavior="none"
        value={value}
        data-autofocus
        onChange={setValue}
      />
    </FormDialog>
  );
}

function EndpointFacts({ endpoint }: { endpoint: Endpoint }) {
  return (
    <>
      <Facts
        facts={[
          [
            t("endpoints.replicas"),
            t("endpoint.readyOf", { ready: endpoint.ready, replicas: endpoint.replicas }),
          ],
          [
            t("endpoints.requests"),
            t("endpoints.load", { running: endpoint.running ?? 0, waiting: endpoint.waiting ?? 0 }),
          ],
          [t("endpoint.kv"), endpoint.kv_cache == null ? "–" : `${Math.round(endpoint.kv_cache * 100)} %`],
          [t("endpoints.revision"), endpoint.revision ?? 1],
          [t("endpoint.engine"), String(endpoint.spec?.engine ?? "–")],
          [t("endpoint.model"), String(endpoint.spec?.model ?? "–")],
          [t("field.group"), String(endpoint.spec?.resource_group ?? "–")],
          [t("endpoint.shared"), (endpoint.shared_with ?? []).join(", ") || t("endpoint.notShared")],
        ]}
      />
      {endpoint.reason ? (
        <p className="card-line">
          <strong>{reasonText(endpoint.reason)}</strong> {visible(endpoint.detail ?? "")}
        </p>
      ) : null}
    </>
  );
}

function Replicas({ replicas }: { replicas: Replica[] }) {
  return (
    <DataTable
      label={t("endpoints.replicas")}
      rows={replicas}
      id={(replica) => replica.session_id}
      empty={<Empty title={t("endpoint.noReplicas")}>{t("endpoint.noReplicasText")}</Empty>}
      columns={[
        {
          key: "name",
          header: t("field.session"),
          cell: (replica) => (
            <Link to="/sessions/$ref" params={{ ref: replica.session_id }} className="link">
              {visible(replica.name)}
            </Link>
          ),
        },
        {
          key: "state",
          header: t("field.status"),
          cell: (replica) => <StatusText status={(replica.state as ReplicaState) || replica.status} />,
        },
        {
          key: "revision",
          header: t("endpoints.revision"),
          right: true,
          cell: (replica) => replica.revision ?? 1,
        },
        {
          key: "agent",
          header: t("field.agent"),
          cell: (replica) =>
            replica.agent_id ? (
              <Link to="/agents/$id" params={{ id: replica.agent_id }} className="link">
                {replica.agent_id}
              </Link>
            ) : (
              "–"
            ),
        },
        {
          key: "requests",
          header: t("endpoints.requests"),
          right: true,
          cell: (replica) =>
            t("endpoints.load", { running: replica.running ?? 0, waiting: replica.waiting ?? 0 }),
        },
        {
          key: "kv",
          header: t("endpoint.kv"),
          right: true,
          wide: true,
          cell: (replica) => (replica.kv_cache == null ? "–" : `${Math.round(replica.kv_cache * 100)} %`),
        },
        {
          key: "since",
          header: t("session.since"),
          wide: true,
          cell: (replica) => <Age at={replica.status_since} />,
        },
        {
          key: "detail",
          header: t("field.detail"),
          wide: true,
          cell: (replica) => visible(replica.unhealthy || replica.detail || "") || "–",
        },
      ]}
    />
  );
}

function Revisions({ endpoint }: { endpoint: Endpoint }) {
  const revisions = useQuery(revisionsQuery(endpoint.name));
  return (
    <Loaded query={revisions}>
      {(rows) => (
        <DataTable<Revision>
          label={t("endpoint.revisions")}
          rows={rows}
          id={(revision) => String(revision.revision)}
          columns={[
            {
              key: "revision",
              header: t("endpoints.revision"),
              cell: (revision) =>
                revision.current ? t("endpoint.current", { revision: revision.revision }) : revision.revision,
            },
            {
              key: "state",
              header: t("field.status"),
              cell: (revision) => (revision.state ? <StatusText status={revision.state} /> : "–"),
            },
            { key: "by", header: t("field.actor"), cell: (revision) => visible(revision.created_by) },
            { key: "at", header: t("field.created"), cell: (revision) => <Age at={revision.created_at} /> },
            {
              key: "detail",
              header: t("field.detail"),
              cell: (revision) => visible(revision.detail ?? "") || "–",
            },
            {
              key: "undo",
              header: t("field.action"),
              cell: (revision) =>
                revision.current ? "" : <ReturnTo endpoint={endpoint} revision={revision.revision} />,
            },
          ]}
        />
      )}
    </Loaded>
  );
}

function ReturnTo({ endpoint, revision }: { endpoint: Endpoint; revision: number }) {
  return (
    <Opener
      label={t("endpoint.return")}
      dialog={(close) => (
        <Confirm
          title={t("endpoint.returnTitle", { revision })}
          consequences={[t("endpoint.returnText", { count: endpoint.replicas, revision })]}
          verb={t("endpoint.return")}
          act={() =>
            unwrap(
              api.POST("/v1/endpoints/{name}/rollout/undo", {
                params: { path: { name: endpoint.name } },
                body: { revision },
              }),
            )
          }
          done={t("endpoint.returned", { revision })}
          close={close}
        />
      )}
    />
  );
}
