import {
  Checkbox,
  NativeSelect,
  NumberInput,
  Group as Row,
  SimpleGrid,
  TagsInput,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap, unwrapVersioned } from "@/api/client";
import { projectsQuery, usersQuery } from "@/api/queries";
import { TYPES } from "@/api/statuses";
import { Conflict, type Latest } from "@/parts/Conflict";
import { FormDialog } from "@/parts/FormDialog";
import { t } from "@/texts";
import { HpcFields, hpcIsReady } from "./HpcFields";
import { LimitFields } from "./LimitFields";
import { CeilingFields, PreemptionFields } from "./PreemptionFields";

type Options = Schemas["GroupOptions"];

const CHOICES = {
  strategy: ["fifo", "lifo", "drf"],
  hol: ["backfill", "skip", "strict"],
  agent_selection: ["concentrated", "dispersed", "round-robin"],
  replicas: ["spread", "pack", "none"],
  fraction: ["fill", "even"],
  share_by: ["user", "project"],
} as const;

const DEFAULTS = {
  strategy: "fifo",
  hol: "backfill",
  agent_selection: "concentrated",
  replicas: "spread",
  fraction: "fill",
  share_by: "user",
} as Options;

type Group = Latest<Options>;

/** A group's current state, with the version to send when changing it. */
export async function readGroup(name: string): Promise<Group> {
  const { value, etag } = await unwrapVersioned(api.GET("/v1/groups/{name}", { params: { path: { name } } }));
  return { value: value.options, etag, by: value.changed_by, at: value.changed_at };
}

/** Creates a resource group, or edits `group` as it was when the form was opened. */
export function GroupForm({
  name: given,
  group,
  close,
}: {
  name?: string;
  group?: Group;
  close: () => void;
}) {
  const [name, setName] = useState(given ?? "");
  const [base, setBase] = useState(group);
  const [options, setOptions] = useState<Options>(group?.value ?? DEFAULTS);
  // The suggestions are fetched when the user selects the field.
  const [asked, setAsked] = useState({ projects: false, users: false });
  const projects = useQuery({ ...projectsQuery, enabled: asked.projects });
  const users = useQuery({ ...usersQuery, retry: false, enabled: asked.users });
  const set = (change: Partial<Options>) => setOptions({ ...options, ...change });
  const save = (etag = base?.etag) =>
    etag === undefined
      ? unwrap(api.POST("/v1/groups", { body: { name: name.trim(), options } }))
      : unwrap(
          api.PUT("/v1/groups/{name}", {
            params: { path: { name } },
            body: options,
            headers: { "If-Match": etag },
          }),
        );
  const many = (values: string[]) => (values.length > 0 ? values : null);
  return (
    <FormDialog
      size="lg"
      title={group ? t("group.edit", { name }) : t("groups.create")}
      verb={group ? t("action.save") : t("action.create")}
      ready={name.trim() !== "" && hpcIsReady(options.hpc)}
      save={save}
      done={t(group ? "group.saved" : "group.created", { name })}
      close={close}
      problem={({ error, again, reset }) => (
        <Conflict
          error={error}
          base={base?.value ?? DEFAULTS}
          mine={options}
          latest={() => readGroup(name)}
          reload={(latest) => {
            setBase(latest);
            setOptions(latest.value);
            reset();
          }}
          overwrite={(latest) => again(latest.etag)}
        />
      )}
    >
      {group ? null : (
        <TextInput
          label={t("field.name")}
          value={name}
          required
          data-autofocus
          onChange={(event) => setName(event.currentTarget.value)}
        />
      )}
      <TextInput
        label={t("group.description")}
        value={options.description ?? ""}
        onChange={(event) => set({ description: event.currentTarget.value })}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        {(Object.keys(CHOICES) as (keyof typeof CHOICES)[])
          .filter((field) => field !== "share_by" || options.strategy === "drf")
          .map((field) => (
            // The browser's own, because five of Mantine's take as long to create as the rest of the dialog.
            <NativeSelect
              key={field}
              label={t(`group.${field}`)}
              description={t(`group.${field}Help`)}
              data={[...new Set([...CHOICES[field], String(options[field] ?? CHOICES[field][0])])]}
              value={String(options[field] ?? CHOICES[field][0])}
              onChange={(event) => set({ [field]: event.currentTarget.value } as Partial<Options>)}
            />
          ))}
        <Limit
          label={t("group.bypasses")}
          help={t("group.bypassesHelp")}
          value={options.max_bypasses}
          fallback={100}
          set={(max_bypasses) => set({ max_bypasses })}
        />
        <Limit
          label={t("group.skipAge")}
          help={t("group.skipAgeHelp")}
          value={options.max_skip_age_s}
          fallback={3600}
          set={(max_skip_age_s) => set({ max_skip_age_s })}
        />
      </SimpleGrid>
      <PreemptionFields value={options.preemption} set={(preemption) => set({ preemption })} />
      <CeilingFields value={options.max_priority} set={(max_priority) => set({ max_priority })} />
      <LimitFields value={options.limits} set={(limits) => set({ limits })} />
      <Checkbox.Group
        label={t("group.types")}
        description={t("group.typesHelp")}
        value={options.session_types ?? []}
        onChange={(value) => set({ session_types: many(value) as Options["session_types"] })}
      >
        <Row gap="md" mt={6}>
          {TYPES.map((type) => (
            <Checkbox key={type} value={type} label={type} />
          ))}
        </Row>
      </Checkbox.Group>
      <TagsInput
        label={t("group.images")}
        description={t("group.imagesHelp")}
        value={options.images ?? []}
        onChange={(value) => set({ images: many(value) })}
      />
      <TagsInput
        label={t("group.projects")}
        description={t("group.projectsHelp")}
        data={projects.data?.map((project) => project.name) ?? []}
        onFocus={() => setAsked((before) => ({ ...before, projects: true }))}
        value={options.projects ?? []}
        onChange={(value) => set({ projects: many(value) })}
      />
      <TagsInput
        label={t("group.users")}
        description={t("group.usersHelp")}
        data={users.data?.map((user) => user.name) ?? []}
        onFocus={() => setAsked((before) => ({ ...before, users: true }))}
        value={options.users ?? []}
        onChange={(value) => set({ users: many(value) })}
      />
      <HpcFields value={options.hpc} set={(hpc) => set({ hpc })} />
    </FormDialog>
  );
}

function Limit({
  label,
  help,
  value,
  fallback,
  set,
}: {
  label: string;
  help: string;
  value: number | null | undefined;
  fallback: number;
  set: (value: number | null) => void;
}) {
  return (
    <NumberInput
      label={label}
      description={help}
      min={0}
      value={value === undefined ? fallback : (value ?? "")}
      onChange={(next) => set(next === "" ? null : Number(next))}
    />
  );
}
