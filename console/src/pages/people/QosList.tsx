import { Checkbox, Group, NativeSelect, NumberInput, SimpleGrid, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, etagOf, type Qos, type Schemas, unwrap } from "@/api/client";
import { projectsQuery, qosQuery } from "@/api/queries";
import { linesOf } from "@/forms/slotLines";
import { Minutes, SlotLines } from "@/pages/groups/LimitFields";
import { Confirm, Opener } from "@/parts/actions";
import { Conflict } from "@/parts/Conflict";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { duration, visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";

type Options = Schemas["QosOptions"];

const NONE: Options = {
  description: "",
  price_factor: 1,
  max_per_session: {},
  max_per_user: {},
  max_total: {},
};
const COUNTS = ["max_running_per_user", "max_running"] as const;
const SLOTS = ["max_per_session", "max_per_user", "max_total"] as const;

/** Qualities of service: what sessions that use one get, and what limits them. */
export function QosList() {
  const all = useQuery(qosQuery);
  return (
    <Section
      title={t("qos.title")}
      actions={<Opener label={t("qos.create")} dialog={(close) => <QosForm close={close} />} />}
    >
      <Loaded query={all}>
        {(rows) => (
          <DataTable<Qos>
            label={t("qos.title")}
            rows={rows}
            id={(qos) => qos.name}
            empty={
              <Empty title={t("qos.empty")} command="moorage qos set debug priority=50 max_time_s=1800">
                {t("qos.emptyText")}
              </Empty>
            }
            columns={[
              { key: "name", header: t("field.name"), cell: (qos) => visible(qos.name) },
              {
                key: "description",
                header: t("group.description"),
                wide: true,
                cell: (qos) => visible(qos.description ?? "") || "–",
              },
              {
                key: "priority",
                header: t("session.priority"),
                right: true,
                cell: (qos) => qos.priority ?? "–",
              },
              {
                key: "price",
                header: t("qos.price_factor"),
                right: true,
                cell: (qos) => `× ${qos.price_factor ?? 1}`,
              },
              {
                key: "time",
                header: t("qos.max_time_s"),
                right: true,
                cell: (qos) => (qos.max_time_s == null ? "–" : duration(qos.max_time_s * 1000)),
              },
              { key: "limits", header: t("qos.limits"), cell: (qos) => limitsOf(qos).join(" · ") || "–" },
              {
                key: "projects",
                header: t("group.projects"),
                cell: (qos) => (qos.projects == null ? t("qos.all") : qos.projects.join(", ") || "–"),
              },
              {
                key: "action",
                header: t("field.action"),
                cell: (qos) => (
                  <Group gap={6} className="row-actions">
                    <Opener
                      label={t("action.edit")}
                      dialog={(close) => <QosForm base={qos} close={close} />}
                    />
                    <Remove qos={qos} />
                  </Group>
                ),
              },
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

function limitsOf(qos: Qos): string[] {
  const counts = COUNTS.filter((field) => qos[field] != null).map((field) =>
    t(`qos.of.${field}`, { count: qos[field] ?? 0 }),
  );
  const slots = SLOTS.filter((field) => linesOf(qos[field]).length > 0).map((field) =>
    t(`qos.of.${field}`, { slots: linesOf(qos[field]).join(" ") }),
  );
  return [...slots, ...counts];
}

function Remove({ qos }: { qos: Qos }) {
  return (
    <Opener
      label={t("qos.remove")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("qos.removeTitle", { name: qos.name })}
          consequences={[t("qos.removeText")]}
          verb={t("qos.remove")}
          act={() =>
            unwrap(
              api.DELETE("/v1/qos/{name}", {
                params: { path: { name: qos.name } },
                headers: { "If-Match": etagOf(qos) },
              }),
            )
          }
          done={t("qos.removed", { name: qos.name })}
          close={close}
        />
      )}
    />
  );
}

const edited = ({ name: _, version, changed_at, changed_by, ...options }: Qos): Options => options;

function QosForm({ base: given, close }: { base?: Qos; close: () => void }) {
  const [base, setBase] = useState(given);
  const [name, setName] = useState(given?.name ?? "");
  const [options, setOptions] = useState<Options>(given ? edited(given) : NONE);
  const [asked, setAsked] = useState(false);
  const projects = useQuery({ ...projectsQuery, enabled: asked });
  const set = (part: Partial<Options>) => setOptions({ ...options, ...part });
  const save = (etag = etagOf(base)) =>
    unwrap(
      api.PUT("/v1/qos/{name}", {
        params: { path: { name: name.trim() } },
        body: options,
        ...(base ? { headers: { "If-Match": etag } } : {}),
      }),
    );
  const orNull = (value: string | number) => (value === "" ? null : Number(value));
  return (
    <FormDialog
      size="lg"
      title={base ? t("qos.edit", { name }) : t("qos.create")}
      verb={t("action.save")}
      ready={name.trim() !== ""}
      save={save}
      done={t("qos.saved", { name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={base ? edited(base) : NONE}
          mine={options}
          latest={async () => {
            const qos = await unwrap(api.GET("/v1/qos/{name}", { params: { path: { name } } }));
            return {
              value: edited(qos),
              etag: etagOf(qos),
              by: qos.changed_by,
              at: qos.changed_at,
              whole: qos,
            };
          }}
          reload={({ whole }) => {
            setBase(whole);
            setOptions(edited(whole));
            reset();
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    >
      {base ? null : (
        <TextInput
          label={t("field.name")}
          required
          data-autofocus
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
      )}
      <TextInput
        label={t("group.description")}
        value={options.description ?? ""}
        onChange={(event) => set({ description: event.currentTarget.value })}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <NumberInput
          label={t("session.priority")}
          description={t("qos.priorityHelp")}
          min={0}
          max={100}
          allowDecimal={false}
          value={options.priority ?? ""}
          onChange={(value) => set({ priority: orNull(value) })}
        />
        <NativeSelect
          label={t("qos.preemptible")}
          description={t("qos.preemptibleHelp")}
          data={[
            { value: "", label: t("qos.asRequested") },
            { value: "true", label: t("qos.yes") },
            { value: "false", label: t("qos.no") },
          ]}
          value={options.preemptible == null ? "" : String(options.preemptible)}
          onChange={(event) => {
            const value = event.currentTarget.value;
            set({ preemptible: value === "" ? null : value === "true" });
          }}
        />
        <NumberInput
          label={t("qos.price_factor")}
          description={t("qos.priceFactorHelp")}
          min={0}
          max={1000}
          decimalScale={4}
          value={options.price_factor ?? 1}
          onChange={(value) => set({ price_factor: value === "" ? 1 : Number(value) })}
        />
        <Minutes
          label={t("qos.max_time_s")}
          help={t("quotas.noLimitHelp")}
          seconds={options.max_time_s}
          set={(max_time_s) => set({ max_time_s })}
        />
        {COUNTS.map((field) => (
          <NumberInput
            key={field}
            label={t(`qos.${field}`)}
            description={t("quotas.noLimitHelp")}
            min={1}
            allowDecimal={false}
            value={options[field] ?? ""}
            onChange={(value) => set({ [field]: orNull(value) })}
          />
        ))}
        {SLOTS.map((field) => (
          <SlotLines
            key={field}
            label={t(`qos.${field}`)}
            help={t("quotas.slotsHelp")}
            slots={options[field]}
            set={(slots) => set({ [field]: slots })}
          />
        ))}
      </SimpleGrid>
      <Checkbox
        label={t("qos.everybody")}
        checked={options.projects == null}
        onChange={(event) => set({ projects: event.currentTarget.checked ? null : [] })}
      />
      {options.projects == null ? null : (
        <TagsInput
          label={t("group.projects")}
          data={projects.data?.map((project) => project.name) ?? []}
          onFocus={() => setAsked(true)}
          value={options.projects}
          onChange={(value) => set({ projects: value })}
        />
      )}
    </FormDialog>
  );
}
