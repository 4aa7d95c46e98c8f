import { Link } from "@tanstack/react-router";
import type { Session } from "@/api/client";
import { t } from "@/texts";
import { DataTable } from "./DataTable";
import { reasonText, slotsText, visible } from "./format";
import { Empty } from "./States";
import { Age } from "./Time";

const whyOf = (session: Session) =>
  session.hold ? visible(session.hold.text) : session.reason ? reasonText(session.reason) : t("queue.fresh");

/** Waiting sessions, each with the reason. */
export function Queue({ sessions, groups }: { sessions: Session[]; groups?: boolean }) {
  return (
    <DataTable
      label={t("queue.label")}
      rows={sessions}
      id={(session) => session.id}
      oneLine
      empty={<Empty title={t("queue.empty")} />}
      columns={[
        {
          key: "name",
          header: t("field.session"),
          cell: (session) => (
            <Link to="/sessions/$ref" params={{ ref: session.id }} className="link">
              {visible(session.name)}
            </Link>
          ),
        },
        { key: "user", header: t("field.user"), wide: true, cell: (session) => visible(session.user ?? "") },
        ...(groups
          ? [
              {
                key: "group",
                header: t("field.group"),
                wide: true,
                cell: (session: Session) => session.resource_group,
              },
            ]
          : []),
        {
          key: "slots",
          header: t("field.requested"),
          wide: 0.5,
          cell: (session) => slotsText(session.slots),
        },
        { key: "since", header: t("field.waiting"), cell: (session) => <Age at={session.created_at} /> },
        { key: "why", header: t("field.why"), line: whyOf, cell: whyOf },
      ]}
    />
  );
}
