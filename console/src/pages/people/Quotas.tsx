import { Group, NumberInput, Select, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, etagOf, type Quota, unwrap } from "@/api/client";
import { quotasQuery } from "@/api/queries";
import { slotsOf } from "@/forms/slotLines";
import { Confirm, Opener } from "@/parts/actions";
import { Conflict } from "@/parts/Conflict";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { amount, compareSlots, number, slotName, visible } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { Limits } from "./Limits";
import { QosList } from "./QosList";

const SCOPES = ["project", "user", "group"] as const;
type Scope = (typeof SCOPES)[number];

export function Quotas() {
  const quotas = useQuery(quotasQuery);
  return (
    <Page
      title={t("nav.quotas")}
      lead={t("quotas.lead")}
      actions={
        <Opener label={t("quotas.create")} variant="filled" dialog={(close) => <QuotaForm close={close} />} />
      }
    >
      <Section title={t("quotas.all")}>
        <Loaded query={quotas}>
          {(rows) => (
            <DataTable
              label={t("nav.quotas")}
              rows={rows}
              id={(quota) => `${quota.scope}/${quota.name}`}
              empty={
                <Empty title={t("quotas.empty")} command="moorage quotas set project NAME cuda.device=4">
                  {t("quotas.emptyText")}
                </Empty>
              }
              columns={[
                {
                  key: "name",
                  header: t("field.name"),
                  cell: (quota) => `${t(`quotas.${quota.scope}`)} ${visible(quota.name)}`,
                },
                { key: "slots", header: t("quotas.slots"), cell: (quota) => <SlotUse quota={quota} /> },
                {
                  key: "sessions",
                  header: t("groups.placed"),
                  right: true,
                  cell: (quota) => ofLimit(quota.running, quota.sessions),
                },
                {
                  key: "pending",
                  header: t("field.waiting"),
                  right: true,
                  cell: (quota) => ofLimit(quota.waiting, quota.pending),
                },
                {
                  key: "nodeHours",
                  header: t("quotas.nodeHours"),
                  right: true,
                  cell: (quota) => <NodeHours quota={quota} />,
                },
                {
                  key: "changed",
                  header: t("quotas.changed"),
                  wide: true,
                  cell: (quota) => <Age at={quota.changed_at} />,
                },
                {
                  key: "action",
                  header: t("field.action"),
                  cell: (quota) => (
                    <Group gap={6} className="row-actions">
                      <Opener
                        label={t("action.edit")}
                        dialog={(close) => <QuotaForm base={quota} close={close} />}
                      />
                      <Remove quota={quota} />
                    </Group>
                  ),
                },
              ]}
            />
          )}
        </Loaded>
      </Section>
      <QosList />
      <Limits />
    </Page>
  );
}

const ofLimit = (used: number, limit: number | null) =>
  limit === null ? number(used) : t("usage.of", { used, capacity: limit });

function SlotUse({ quota }: { quota: Quota }) {
  const names = [...new Set([...Object.keys(quota.slots), ...Object.keys(quota.used)])].sort(compareSlots);
  return (
    <span>
      {names
        .map((slot) => {
          const used = amount(slot, quota.used[slot] ?? 0);
          const limit = quota.slots[slot];
          return `${slotName(slot)} ${limit === undefined ? used : t("usage.of", { used, capacity: amount(slot, limit) })}`;
        })
        .join(" · ") || "–"}
    </span>
  );
}

/** This month's hours: used, reserved by live jobs, and the limit. */
function NodeHours({ quota }: { quota: Quota }) {
  if (quota.node_hours === null || quota.node_hours === undefined) return <span>–</span>;
  const used = String(round(quota.node_hours_used ?? 0));
  const reserved = quota.node_hours_reserved ? ` + ${round(quota.node_hours_reserved)}` : "";
  return <span>{t("usage.of", { used: used + reserved, capacity: quota.node_hours })}</span>;
}

const round = (hours: number) => Math.round(hours * 100) / 100;

function Remove({ quota }: { quota: Quota }) {
  return (
    <Opener
      label={t("quotas.remove")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("quotas.removeTitle", { name: quota.name })}
          consequences={[t("quotas.removeText", { count: quota.waiting })]}
          verb={t("quotas.remove")}
          act={() =>
            unwrap(
              api.DELETE("/v1/quotas/{scope}/{name}", {
                params: { path: { scope: quota.scope, name: quota.name } } as never,
                headers: { "If-Match": etagOf(quota) },
              }),
            )
          }
          done={t("quotas.removed", { name: quota.name })}
          close={close}
        />
      )}
    />
  );
}

const slotLines = (quota?: Quota) =>
  Object.entries(quota?.slots ?? {}).map(
    ([slot, value]) => `${slot}=${slot === "mem" ? value : amount(slot, value)}`,
  );

const edited = (quota: Quota) => ({
  slots: slotsOf(slotLines(quota)),
  sessions: quota.sessions,
  pending: quota.pending,
  node_hours: quota.node_hours,
});

const readQuota = (scope: Scope, name: string) =>
  unwrap(api.GET("/v1/quotas/{scope}/{name}", { params: { path: { scope, name } } as never }));

function QuotaForm({ base: given, close }: { base?: Quota; close: () => void }) {
  const [base, setBase] = useState(given);
  const [scope, setScope] = useState<Scope>((base?.scope as Scope | undefined) ?? "project");
  const [name, setName] = useState(base?.name ?? "");
  const [slots, setSlots] = useState<string[]>(slotLines(base));
  const [sessions, setSessions] = useState<number | null>(base?.sessions ?? null);
  const [pending, setPending] = useState<number | null>(base?.pending ?? null);
  const [nodeHours, setNodeHours] = useState<number | null>(base?.node_hours ?? null);
  const mine = { slots: slotsOf(slots), sessions, pending, node_hours: nodeHours };
  const save = (etag = etagOf(base)) =>
    unwrap(
      api.PUT("/v1/quotas/{scope}/{name}", {
        params: { path: { scope, name: name.trim() } } as never,
        body: mine,
        ...(base ? { headers: { "If-Match": etag } } : {}),
      }),
    );
  const limit = (value: string | number) => (value === "" ? null : Number(value));
  return (
    <FormDialog
      title={base ? t("quotas.edit", { name }) : t("quotas.create")}
      verb={t("action.save")}
      ready={name.trim() !== ""}
      save={save}
      done={t("quotas.saved", { name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={base ? edited(base) : {}}
          mine={mine}
          latest={async () => {
            const quota = await readQuota(scope, name);
            const { changed_by: by, changed_at: at } = quota;
            return { value: edited(quota), etag: etagOf(quota), by, at, whole: quota };
          }}
          reload={({ whole }) => {
            setBase(whole);
            setSlots(slotLines(whole));
            setSessions(whole.sessions);
            setPending(whole.pending);
            setNodeHours(whole.node_hours ?? null);
            reset();
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    >
      {base ? null : (
        <>
          <Select
            label={t("quotas.scope")}
            allowDeselect={false}
            data={SCOPES.map((value) => ({ value, label: t(`quotas.${value}`) }))}
            value={scope}
            onChange={(value) => setScope(value as Scope)}
          />
          <TextInput
            label={t("field.name")}
            required
            data-autofocus
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
        </>
      )}
      <TagsInput
        label={t("quotas.slots")}
        description={t("quotas.slotsHelp")}
        value={slots}
        onChange={setSlots}
      />
      <NumberInput
        label={t("quotas.sessions")}
        description={t("quotas.noLimitHelp")}
        min={0}
        value={sessions ?? ""}
        onChange={(value) => setSessions(limit(value))}
      />
      <NumberInput
        label={t("quotas.pending")}
        description={t("quotas.noLimitHelp")}
        min={0}
        value={pending ?? ""}
        onChange={(value) => setPending(limit(value))}
      />
      <NumberInput
        label={t("quotas.nodeHours")}
        description={t("quotas.nodeHoursHelp")}
        min={0}
        value={nodeHours ?? ""}
        onChange={(value) => setNodeHours(limit(value))}
      />
    </FormDialog>
  );
}
