import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { templateQuery, templateVersionsQuery } from "@/api/queries";
import { SpecText } from "@/forms/SpecText";
import { brief } from "@/forms/values";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Facts, Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

type Template = Schemas["TemplateView"];
type Parameter = Schemas["Parameter"];

export function TemplatePage() {
  const { name } = useParams({ from: "/templates/$name" });
  const template = useQuery(templateQuery(name));
  return (
    <Loaded query={template} height={300} page={visible(name)}>
      {({ value }) => <Shown template={value} />}
    </Loaded>
  );
}

function Shown({ template }: { template: Template }) {
  const { description, parameters } = template.template;
  const named = Object.entries((parameters ?? {}) as Record<string, Parameter>);
  return (
    <Page
      title={visible(template.name)}
      lead={visible(String(description ?? ""))}
      may="change"
      actions={<Actions template={template} />}
    >
      <Section title={t("template.about")}>
        <Facts
          facts={[
            [t("field.version"), template.version],
            [t("field.project"), visible(template.project) || t("template.everybody")],
            [t("template.base"), template.bases.map((base) => visible(base)).join(", ") || null],
            [t("field.actor"), visible(template.created_by)],
            [t("field.created"), <Age key="created" at={template.created_at} />],
          ]}
        />
      </Section>
      <Section title={t("template.parameters")}>
        <DataTable
          label={t("template.parameters")}
          rows={named}
          id={([name]) => name}
          empty={<Empty title={t("template.noParameters")} />}
          columns={[
            { key: "name", header: t("field.name"), cell: ([name]) => name },
            { key: "type", header: t("field.type"), cell: ([, one]) => one.type ?? "string" },
            {
              key: "default",
              header: t("template.default"),
              cell: ([, one]) =>
                one.default === null || one.default === undefined
                  ? t("template.required")
                  : visible(String(one.default)),
            },
            { key: "allowed", header: t("template.allowed"), cell: ([, one]) => allowed(one) },
            {
              key: "description",
              header: t("group.description"),
              wide: true,
              cell: ([, one]) => visible(one.description ?? "") || "–",
            },
          ]}
        />
      </Section>
      <Section title={t("session.spec")}>
        <SpecText label={t("session.spec")} value={brief(template.template, { kind: "template" })} />
      </Section>
      <Section title={t("template.versions")}>
        <Versions name={template.name} />
      </Section>
    </Page>
  );
}

function allowed({ choices, min, max }: Parameter): string {
  if (choices) {
    return choices.map((one) => visible(String(one))).join(", ");
  }
  const bounds = [
    ...(min === null || min === undefined ? [] : [`≥ ${min}`]),
    ...(max === null || max === undefined ? [] : [`≤ ${max}`]),
  ];
  return bounds.join(", ") || "–";
}

function Actions({ template }: { template: Template }) {
  const navigate = useNavigate();
  const { name, project } = template;
  return (
    <>
      <Button size="xs" component={Link} to="/new-session" search={{ template: name } as never}>
        {t("template.start")}
      </Button>
      <Button
        size="xs"
        variant="default"
        component={Link}
        to="/templates/$name/change"
        params={{ name } as never}
      >
        {t("template.change")}
      </Button>
      <Opener
        label={t("template.delete")}
        danger
        dialog={(close) => (
          <Confirm
            title={t("template.deleteTitle", { name: visible(name) })}
            consequences={[
              t("template.deleteVersions", { count: template.version }),
              ...(project === "" ? [t("template.deleteShared")] : []),
              t("template.deleteKeeps"),
            ]}
            verb={t("template.delete")}
            retype={name}
            act={async () => {
              await unwrap(
                api.DELETE("/v1/templates/{name}", {
                  params: { path: { name }, query: { for_all: project === "" } },
                }),
              );
              await navigate({ to: "/templates" });
            }}
            done={t("template.deleted", { name: visible(name) })}
            close={close}
          />
        )}
      />
    </>
  );
}

function Versions({ name }: { name: string }) {
  const versions = useQuery(templateVersionsQuery(name));
  return (
    <Loaded query={versions}>
      {(rows) => (
        <DataTable
          label={t("template.versions")}
          rows={rows}
          id={(one) => String(one.version)}
          columns={[
            { key: "version", header: t("field.version"), cell: (one) => one.version },
            { key: "by", header: t("field.actor"), cell: (one) => visible(one.created_by) },
            { key: "created", header: t("field.created"), cell: (one) => <Age at={one.created_at} /> },
          ]}
        />
      )}
    </Loaded>
  );
}
