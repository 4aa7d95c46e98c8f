import { Button } from "@mantine/core";
import { api, type Session, unwrap } from "@/api/client";
import { useAction } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Problem } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

/** Asks the program to reload its settings. `Reloads` shows its acknowledgement, which arrives later. */
export function useReload(session: Session) {
  return useAction(
    () => unwrap(api.POST("/v1/sessions/{ref}/reload", { params: { path: { ref: session.id } } })),
    () => t("reload.asked", { name: visible(session.name) }),
  );
}

type Action = ReturnType<typeof useReload>;

/** Shown if the specification says how to reload. A session that shares another's run is reloaded there. */
export function ReloadButton({ session, action }: { session: Session; action: Action }) {
  if (!session.spec?.reload || session.status !== "RUNNING" || session.adopted_from) {
    return null;
  }
  return (
    <Button size="xs" variant="default" loading={action.isPending} onClick={() => action.mutate()}>
      {t("reload.reload")}
    </Button>
  );
}

/** Each kernel's answer to the last reload. */
export function Reloads({ session, action }: { session: Session; action: Action }) {
  const asked = (session.kernels ?? []).filter((kernel) => kernel.reload);
  return (
    <>
      {action.error ? <Problem error={action.error} /> : null}
      {asked.length === 0 ? null : (
        <Section title={t("reload.title")}>
          <DataTable
            label={t("reload.title")}
            rows={asked}
            id={(kernel) => kernel.id}
            columns={[
              { key: "host", header: t("session.kernel"), cell: (kernel) => kernel.hostname },
              {
                key: "state",
                header: t("reload.answer"),
                cell: ({ reload }) => (reload ? <StatusText status={`reload-${reload.state}`} /> : "–"),
              },
              {
                key: "asked",
                header: t("reload.requested"),
                cell: ({ reload }) => (
                  <>
                    <Age at={reload?.requested_at} /> · {visible(reload?.requested_by ?? "")}
                  </>
                ),
              },
              {
                key: "ended",
                header: t("reload.answered"),
                cell: ({ reload }) => (
                  <Age at={reload && reload.state !== "requested" ? reload.ended_at : null} />
                ),
              },
              {
                key: "detail",
                header: t("field.detail"),
                cell: ({ reload }) => (reload?.state !== "requested" && visible(reload?.detail ?? "")) || "–",
              },
            ]}
          />
        </Section>
      )}
    </>
  );
}
