import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "@/api/client";
import { templatesQuery } from "@/api/queries";
import { type Column, DataTable } from "@/parts/DataTable";
import { visible } from "@/parts/format";
import { Page, Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { Age } from "@/parts/Time";
import { t } from "@/texts";

type Template = Schemas["TemplateView"];

const COLUMNS: Column<Template>[] = [
  {
    key: "name",
    header: t("field.template"),
    cell: (template) => (
      <Link to="/templates/$name" params={{ name: template.name }} className="link">
        {visible(template.name)}
      </Link>
    ),
  },
  { key: "version", header: t("field.version"), right: true, cell: (template) => template.version },
  {
    key: "project",
    header: t("field.project"),
    cell: (template) => visible(template.project) || t("template.everybody"),
  },
  {
    key: "description",
    header: t("group.description"),
    wide: true,
    cell: (template) => visible(String(template.template.description ?? "")) || "–",
  },
  { key: "by", header: t("field.actor"), wide: true, cell: (template) => visible(template.created_by) },
  { key: "created", header: t("field.created"), cell: (template) => <Age at={template.created_at} /> },
];

export function Templates() {
  const templates = useQuery(templatesQuery);
  return (
    <Page
      title={t("nav.templates")}
      lead={t("templates.lead")}
      may="change"
      actions={
        <Button size="xs" component={Link} to="/new-template">
          {t("templates.create")}
        </Button>
      }
    >
      <Section title={t("templates.all")}>
        <Loaded query={templates} height={300}>
          {(rows) => (
            <DataTable
              label={t("nav.templates")}
              rows={rows}
              id={(template) => `${template.project}/${template.name}`}
              columns={COLUMNS}
              empty={<Empty title={t("templates.empty")}>{t("templates.emptyText")}</Empty>}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}
