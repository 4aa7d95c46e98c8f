import {
  Button,
  Modal,
  MultiSelect,
  NumberInput,
  Group as Row,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
  TextInput,
} from "@mantine/core";
import { type FormEvent, useState } from "react";
import { ApiProblem, api, type Schemas, unwrap } from "@/api/client";
import { TYPES } from "@/api/queries";
import { announce, useAction } from "@/parts/actions";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

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

/** Creates a resource group, or edits `base`, which was read with `etag`. */
export function GroupForm({
  base,
  etag,
  close,
}: {
  base?: { name: string; options: Options };
  etag?: string;
  close: () => void;
}) {
  const [name, setName] = useState(base?.name ?? "");
  const [options, setOptions] = useState<Options>(base?.options ?? DEFAULTS);
  const set = (change: Partial<Options>) => setOptions({ ...options, ...change });
  const save = useAction(async () => {
    const headers = base ? (etag ? { "If-Match": etag } : {}) : { "If-None-Match": "*" };
    return unwrap(api.PUT("/v1/groups/{name}", { params: { path: { name } }, body: options, headers }));
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate(undefined, {
      onSuccess: () => {
        announce(t(base ? "group.saved" : "group.created", { name }));
        close();
      },
    });
  };
  return (
    <Modal
      opened
      onClose={close}
      size="lg"
      title={base ? t("group.edit", { name }) : t("groups.create")}
      closeButtonProps={{ "aria-label": t("action.close") }}
    >
      <form onSubmit={submit}>
        <Stack gap="md">
          {base ? null : (
            <TextInput
              label={t("field.name")}
              value={name}
              required
              data-autofocus
              onChange={(event) => setName(event.currentTarget.value)}
            />
          )}
          <SimpleGrid cols={{ base: 1, sm: 2 }}>
            {(Object.keys(CHOICES) as (keyof typeof CHOICES)[])
              .filter((field) => field !== "share_by" || options.strategy === "drf")
              .map((field) => (
                <Select
                  key={field}
                  label={t(`group.${field}`)}
                  description={t(`group.${field}Help`)}
                  allowDeselect={false}
                  data={[...new Set([...CHOICES[field], String(options[field] ?? CHOICES[field][0])])]}
                  value={String(options[field] ?? CHOICES[field][0])}
                  onChange={(value) => set({ [field]: value } as Partial<Options>)}
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
          <MultiSelect
            label={t("group.types")}
            description={t("group.typesHelp")}
            data={[...TYPES]}
            value={options.session_types ?? []}
            onChange={(value) =>
              set({ session_types: value.length > 0 ? (value as Options["session_types"]) : null })
            }
          />
          <TagsInput
            label={t("group.images")}
            description={t("group.imagesHelp")}
            value={options.images ?? []}
            onChange={(value) => set({ images: value.length > 0 ? value : null })}
          />
          {save.error ? <Conflict error={save.error} /> : null}
          <Row justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
              {t("action.cancel")}
            </Button>
            <Button type="submit" loading={save.isPending} disabled={name.trim() === ""}>
              {base ? t("action.save") : t("action.create")}
            </Button>
          </Row>
        </Stack>
      </form>
    </Modal>
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

/** Somebody else changed it meanwhile: say so, and never overwrite. */
export function Conflict({ error }: { error: unknown }) {
  if (error instanceof ApiProblem && error.status === 412) {
    return (
      <Stack gap="xs" role="alert" className="banner">
        <Text size="sm">{t("conflict.text")}</Text>
        <Text size="sm" className="dim">
          {error.message}
        </Text>
      </Stack>
    );
  }
  return <Problem error={error} />;
}
