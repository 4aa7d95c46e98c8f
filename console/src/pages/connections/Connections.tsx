import { useQuery } from "@tanstack/react-query";
import { usePlatformRole } from "@/api/auth";
import { api, type ManagerView, type Peer, unwrap } from "@/api/client";
import { authorityQuery, managersQuery, peersQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { JoinTokens } from "./JoinTokens";

/** The managers, what is connected to them, and what may join. */
export function Connections() {
  // Without TLS on the links, nothing joins, and there is no certificate authority.
  const hasPeers = (useQuery(peersQuery).data ?? []).length > 0;
  return (
    <Page title={t("nav.connections")} lead={t("connections.lead")}>
      <Managers />
      <Peers />
      <JoinTokens />
      {hasPeers ? <Authority /> : null}
    </Page>
  );
}

function Managers() {
  const managers = useQuery(managersQuery);
  return (
    <Section title={t("connections.managers")}>
      <Loaded query={managers}>
        {(rows) => (
          <DataTable
            label={t("connections.managers")}
            rows={rows}
            id={(manager: ManagerView) => manager.id}
            columns={[
              { key: "id", header: t("field.name"), cell: (manager) => visible(manager.id) },
              {
                key: "role",
                header: t("connections.role"),
                cell: (manager) =>
                  !manager.answers
                    ? t("connections.silent")
                    : manager.leader
                      ? t("connections.leader")
                      : t("connections.follower"),
              },
              { key: "version", header: t("connections.version"), cell: (manager) => manager.version },
              {
                key: "link",
                header: t("connections.link"),
                wide: true,
                cell: (manager) => <span className="mono">{visible(manager.link)}</span>,
              },
              {
                key: "agents",
                header: t("nav.agents"),
                right: true,
                cell: (manager) => String(manager.agents),
              },
              {
                key: "proxies",
                header: t("connections.proxies"),
                right: true,
                cell: (manager) => String(manager.proxies.length),
              },
              {
                key: "started",
                header: t("connections.started"),
                cell: (manager) => <Age at={manager.started_at} />,
              },
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

function Peers() {
  const peers = useQuery(peersQuery);
  return (
    <Section title={t("connections.peers")}>
      <Loaded query={peers}>
        {(rows) => (
          <DataTable
            label={t("connections.peers")}
            rows={rows}
            id={(peer) => `${peer.kind} ${peer.name}`}
            empty={<Empty title={t("connections.noPeers")}>{t("connections.noPeersText")}</Empty>}
            columns={[
              { key: "kind", header: t("connections.kind"), cell: (peer) => t(`connections.${peer.kind}`) },
              { key: "name", header: t("field.name"), cell: (peer) => visible(peer.name) },
              { key: "joined", header: t("connections.joined"), cell: (peer) => <Age at={peer.joined_at} /> },
              {
                key: "until",
                header: t("connections.certificate"),
                cell: (peer) => <Age at={peer.certificate_until} />,
              },
              {
                key: "manager",
                header: t("connections.manager"),
                wide: true,
                cell: (peer) => (peer.manager ? visible(peer.manager) : "–"),
              },
              { key: "action", header: t("field.action"), cell: (peer) => <Revoke row={peer} /> },
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

function Revoke({ row }: { row: Peer }) {
  if (usePlatformRole() !== "admin") {
    return null;
  }
  return (
    <Opener
      label={t("connections.revoke")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("connections.revokeTitle", { name: row.name })}
          consequences={[t("connections.revokeNow"), t("connections.revokeKernels")]}
          verb={t("connections.revoke")}
          retype={row.name}
          act={() =>
            unwrap(
              api.DELETE("/v1/peers/{kind}/{name}", {
                params: { path: { kind: row.kind, name: row.name } } as never,
              }),
            )
          }
          done={t("connections.revoked", { name: row.name })}
          close={close}
        />
      )}
    />
  );
}

const nameOf = (peer: { kind: "agent" | "proxy"; name: string }) =>
  `${t(`connections.${peer.kind}`)} ${visible(peer.name)}`;

function Authority() {
  const authority = useQuery(authorityQuery);
  const isAdmin = usePlatformRole() === "admin";
  return (
    <Section
      title={t("connections.authority")}
      actions={
        isAdmin ? (
          <Opener
            label={t("connections.rotate")}
            dialog={(close) => (
              <Confirm
                title={t("connections.rotateTitle")}
                consequences={[t("connections.rotateText"), t("connections.rotateTime")]}
                verb={t("connections.rotate")}
                act={() => unwrap(api.POST("/v1/ca/rotate", { body: {} }))}
                done={t("connections.rotating")}
                close={close}
              />
            )}
          />
        ) : null
      }
    >
      <Loaded query={authority}>
        {(found) => (
          <Facts
            facts={[
              [t("connections.state"), found.state],
              [
                t("connections.issuer"),
                <span className="mono" key="issuer">
                  {visible(found.issuer)}
                </span>,
              ],
              [t("connections.waitingFor"), found.waiting_for.map(nameOf).join(", ")],
              [t("connections.joinAgain"), (found.join_again ?? []).map(nameOf).join(", ")],
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}
