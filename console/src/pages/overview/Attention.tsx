import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { usePlatformRole } from "@/api/auth";
import type { Schemas } from "@/api/client";
import { serverNow } from "@/api/connection";
import { budgetsQuery, endpointsQuery, peersQuery } from "@/api/queries";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { type StatusName, t } from "@/texts";

type Overall = Schemas["Overview"];

interface Trouble {
  key: string;
  status: StatusName;
  subject: ReactNode;
  text: ReactNode;
}

const SHOWN = 8;
// Agents and proxies renew their certificates long before; this late, something prevents it.
const CERTIFICATE_MS = 3 * 86_400_000;
const CERTIFICATES_AGAIN_MS = 600_000;
const FAILED = ["degraded", "stopped"];

function sessionsThatNeverStart(overview: Overall): Trouble[] {
  const count = overview.groups.reduce((sum, group) => sum + (group.waiting?.infeasible ?? 0), 0);
  return count === 0
    ? []
    : [
        {
          key: "infeasible",
          status: "PENDING",
          subject: (
            <Link to="/sessions" search={{ status: ["PENDING"] }} className="link">
              {t("attention.sessions", { count })}
            </Link>
          ),
          text: t("attention.never"),
        },
      ];
}

function agents(overview: Overall): Trouble[] {
  return (overview.troubled_agents ?? []).map((agent) => ({
    key: `agent ${agent.id}`,
    status: agent.status === "ALIVE" ? "FAULTY" : agent.status,
    subject: (
      <Link to="/agents/$id" params={{ id: agent.id }} className="link">
        {agent.id}
      </Link>
    ),
    text:
      agent.status !== "ALIVE"
        ? t("overview.silent")
        : agent.not_ready
          ? visible(agent.not_ready)
          : t("overview.faulty", { devices: (agent.faulty_devices ?? []).join(", ") }),
  }));
}

function endpoints(found: Schemas["EndpointView"][]): Trouble[] {
  return found
    .filter((one) => FAILED.includes(one.status) && one.reason)
    .map((one) => ({
      key: `endpoint ${one.id}`,
      status: one.status,
      subject: (
        <Link to="/endpoints/$name" params={{ name: one.name }} className="link">
          {visible(one.name)}
        </Link>
      ),
      text: visible(one.detail || (one.reason ?? "")),
    }));
}

function budgets(found: Schemas["BudgetView"][]): Trouble[] {
  return found
    .filter((one) => one.level === "hard")
    .map((one) => ({
      key: `budget ${one.scope} ${one.name} ${one.unit} ${one.period}`,
      status: "exhausted",
      subject: (
        <Link to="/usage" className="link">
          {t("attention.budget", { scope: one.scope, name: visible(one.name) })}
        </Link>
      ),
      text: (
        <>
          {t("attention.resets")} <Age at={one.resets_at} />
        </>
      ),
    }));
}

function certificates(found: Schemas["PeerView"][]): Trouble[] {
  return found
    .filter((one) => {
      const left = Date.parse(one.certificate_until) - serverNow();
      return left > 0 && left < CERTIFICATE_MS;
    })
    .map((one) => ({
      key: `certificate ${one.id}`,
      status: "degraded",
      subject: <strong>{t("attention.certificate", { kind: one.kind, name: visible(one.name) })}</strong>,
      text: (
        <>
          {t("attention.expires")} <Age at={one.certificate_until} />
        </>
      ),
    }));
}

/** What does not mend itself, each with a link to where it is mended. */
export function Attention({ overview }: { overview: Overall }) {
  const platform = usePlatformRole() !== "";
  const found = useQuery({ ...endpointsQuery, staleTime: 10_000 });
  const limits = useQuery({ ...budgetsQuery, staleTime: 10_000 });
  const peers = useQuery({
    ...peersQuery,
    enabled: platform,
    // Certificates last for months.
    staleTime: CERTIFICATES_AGAIN_MS,
    refetchInterval: CERTIFICATES_AGAIN_MS,
  });
  const troubles = [
    ...sessionsThatNeverStart(overview),
    ...endpoints(found.data ?? []),
    ...agents(overview),
    ...budgets(limits.data ?? []),
    ...certificates(peers.data ?? []),
  ];
  if (troubles.length === 0) {
    return null;
  }
  return (
    <Section title={t("overview.attention")}>
      <ul className="plain troubles">
        {troubles.slice(0, SHOWN).map(({ key, status, subject, text }) => (
          <li key={key}>
            <StatusText status={status} /> {subject} <span className="dim wrap">{text}</span>
          </li>
        ))}
      </ul>
      {troubles.length > SHOWN ? (
        <p className="dim">{t("attention.more", { count: troubles.length - SHOWN })}</p>
      ) : null}
    </Section>
  );
}
