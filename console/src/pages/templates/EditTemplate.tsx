import { Checkbox, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { usePlatformRole } from "@/api/auth";
import { ApiProblem, api, type Schemas, unwrap, unwrapVersioned } from "@/api/client";
import { templateQuery } from "@/api/queries";
import { HiddenValues } from "@/forms/PlanResult";
import { SpecPage } from "@/forms/SpecPage";
import { brief, type Values } from "@/forms/values";
import { Conflict, type Latest } from "@/parts/Conflict";
import { visible } from "@/parts/format";
import { Loaded } from "@/parts/States";
import { t } from "@/texts";

type Template = Schemas["TemplateView"];

const specOf = (template: Template) => brief(template.template, { kind: "template" });

function put(name: string, body: Values, query: { for_all?: boolean }, headers: Record<string, string>) {
  return unwrap(
    api.PUT("/v1/templates/{name}", { params: { path: { name }, query }, body: body as never, headers }),
  );
}

/** Opens the page of a template that was saved. */
function useOpen() {
  const navigate = useNavigate();
  return (made: Template) => void navigate({ to: "/templates/$name", params: { name: made.name } });
}

const EXAMPLE: Values = {
  description: "",
  parameters: { epochs: { type: "integer", default: 5, min: 1 } },
  spec: { command: ["python", "train.py", "--epochs", "{{ epochs }}"], resources: { cpu: 1, mem: "1GiB" } },
};

/** The name is taken: saving would add a version to a template that the user has not seen. */
class Taken extends Error {}

async function create(name: string, body: Values, forAll: boolean): Promise<Template> {
  try {
    await unwrap(api.GET("/v1/templates/{name}", { params: { path: { name } } }));
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 404) {
      return put(name, body, forAll ? { for_all: true } : {}, {});
    }
    throw error;
  }
  throw new Taken(t("template.taken", { name: visible(name) }));
}

export function NewTemplate() {
  const open = useOpen();
  const [name, setName] = useState("");
  const [forAll, setForAll] = useState(false);
  const administrator = usePlatformRole() === "admin";
  const nameError = (error: unknown) =>
    error instanceof Taken
      ? error.message
      : error instanceof ApiProblem
        ? error.fields.find((one) => one.field === "name")?.message
        : undefined;
  return (
    <SpecPage<never, Template>
      title={t("templates.create")}
      lead={t("template.newLead")}
      start={EXAMPLE}
      above={(error) => (
        <>
          <TextInput
            label={t("field.name")}
            required
            value={name}
            error={nameError(error)}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          {administrator ? (
            <Checkbox
              label={t("template.forAll")}
              checked={forAll}
              onChange={(event) => setForAll(event.currentTarget.checked)}
            />
          ) : null}
        </>
      )}
      verb={t("action.create")}
      save={(spec) => create(name.trim(), spec, forAll)}
      done={(made) => t("template.saved", { name: visible(made.name), version: made.version })}
      saved={open}
      problem={({ error }) => (error instanceof Taken ? null : undefined)}
    />
  );
}

export function ChangeTemplate() {
  const { name } = useParams({ from: "/templates/$name/change" });
  const template = useQuery({ ...templateQuery(name), queryKey: ["templates", name, "change"], gcTime: 0 });
  return (
    <Loaded query={template} height={300} page={visible(name)}>
      {({ value, etag }) => <Change template={value} etag={etag} />}
    </Loaded>
  );
}

function Change({ template, etag }: { template: Template; etag: string }) {
  const open = useOpen();
  // The template as it was when the page was opened, whatever is refetched since.
  const [base, setBase] = useState<Latest<Values>>({ value: specOf(template), etag });
  const query = template.project === "" ? { for_all: true } : {};
  const latest = async (): Promise<Latest<Values>> => {
    const found = await unwrapVersioned(
      api.GET("/v1/templates/{name}", { params: { path: { name: template.name } } }),
    );
    const { created_by: by, created_at: at } = found.value;
    return { value: specOf(found.value), etag: found.etag, by, at };
  };
  return (
    <SpecPage<never, Template>
      title={t("template.changeTitle", { name: visible(template.name) })}
      lead={t("template.changeLead")}
      start={base.value}
      note={<HiddenValues spec={base.value} />}
      verb={t("action.save")}
      save={(spec, _, again) => put(template.name, spec, query, { "If-Match": again ?? base.etag })}
      done={(made) => t("template.saved", { name: visible(made.name), version: made.version })}
      saved={open}
      problem={({ error, mine, again, restart }) => (
        <Conflict
          error={error}
          base={base.value}
          mine={mine}
          latest={latest}
          reload={(found) => {
            setBase(found);
            restart(found.value);
          }}
          overwrite={(found) => again(found.etag)}
        />
      )}
    />
  );
}
