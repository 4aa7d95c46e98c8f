import { Autocomplete, Checkbox, Group, NumberInput, Select, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { usePlatformRole } from "@/api/auth";
import { api, type Budget, unwrap } from "@/api/client";
import { budgetsQuery, currencyQuery, keysQuery, projectsQuery, usersQuery } from "@/api/queries";
import { Confirm, Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { visible } from "@/parts/format";
import { Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { Age } from "@/parts/Time";
import { t } from "@/texts";
import { BUDGET_UNITS, type BudgetUnit, budgetText, fromLedger, toLedger } from "./units";

const SCOPES = ["project", "user", "key"] as const;
const PERIODS = ["day", "week", "month", "year"] as const;
type Scope = (typeof SCOPES)[number];
type Period = (typeof PERIODS)[number];

// Shown as a status, with its colour and dot.
const STATES = { ok: "within", soft: "soft", hard: "exhausted" } as const;

const nameOf = ({ scope, name }: Budget) => `${t(`ledger.${scope}`)} ${visible(name)}`;
const unitOf = ({ unit, period }: Pick<Budget, "unit" | "period">) =>
  t("budgets.of", { unit: t(`budgets.${unit}`), period: t(`budgets.per_${period}`) });

export function Budgets() {
  const mayEdit = usePlatformRole() === "admin";
  const budgets = useQuery(budgetsQuery);
  return (
    <Section
      title={t("budgets.title")}
      actions={
        mayEdit ? (
          <Opener label={t("budgets.create")} dialog={(close) => <BudgetForm close={close} />} />
        ) : null
      }
    >
      <Loaded query={budgets}>
        {(rows) => (
          <DataTable
            label={t("budgets.title")}
            rows={rows}
            id={(one) => `${one.scope}/${one.period}/${one.unit}/${one.name}`}
            empty={
              <Empty
                title={t("budgets.empty")}
                command="moorage budgets set project NAME gpu --hard 500 --soft 400"
              >
                {t("budgets.emptyText")}
              </Empty>
            }
            columns={[
              { key: "name", header: t("field.name"), cell: nameOf },
              { key: "unit", header: t("budgets.unit"), cell: unitOf },
              { key: "used", header: t("budgets.used"), cell: (one) => <Used budget={one} /> },
              {
                key: "state",
                header: t("budgets.state"),
                cell: (one) => (
                  <>
                    <StatusText status={STATES[one.level]} />
                    {(one.warnings ?? []).map((text) => (
                      <Text key={text} size="xs" c="dimmed" maw="24rem">
                        {visible(text)}
                      </Text>
                    ))}
                  </>
                ),
              },
              {
                key: "policy",
                header: t("budgets.policy"),
                wide: true,
                cell: (one) => (one.hard === null ? "–" : t(`budgets.${one.policy}`)),
              },
              { key: "anew", header: t("budgets.anew"), cell: (one) => <Age at={one.resets_at} /> },
              ...(mayEdit
                ? [
                    {
                      key: "action",
                      header: t("field.action"),
                      cell: (one: Budget) => (
                        <Group gap={6} wrap="nowrap">
                          <Opener
                            label={t("action.edit")}
                            dialog={(close) => <BudgetForm base={one} close={close} />}
                          />
                          <Remove budget={one} />
                        </Group>
                      ),
                    },
                  ]
                : []),
            ]}
          />
        )}
      </Loaded>
    </Section>
  );
}

/** How much of it is used, as a bar with figures. */
function Used({ budget: { unit, used, soft, hard } }: { budget: Budget }) {
  const { data: currency = "" } = useQuery(currencyQuery);
  const limit = hard ?? soft ?? 0;
  const share = limit > 0 ? Math.min(100, (100 * used) / limit) : 100;
  const figures = t("usage.of", {
    used: budgetText(unit, used, currency),
    capacity: budgetText(unit, limit, currency),
  });
  const warned =
    soft !== null && hard !== null ? t("budgets.softAt", { amount: budgetText(unit, soft, currency) }) : "";
  return (
    <div>
      <div className="bar" role="img" aria-label={figures}>
        <span data-kind={used >= limit ? "faulty" : undefined} style={{ width: `${share}%` }} />
      </div>
      <span className="dim">
        {figures}
        {warned}
      </span>
    </div>
  );
}

const pathOf = ({ scope, name, unit, period }: Pick<Budget, "scope" | "name" | "unit" | "period">) =>
  ({ path: { scope, name, unit, period } }) as never;

function Remove({ budget }: { budget: Budget }) {
  const name = `${nameOf(budget)}, ${unitOf(budget)}`;
  return (
    <Opener
      label={t("budgets.remove")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("budgets.removeTitle", { name })}
          consequences={[t("budgets.removeText")]}
          verb={t("budgets.remove")}
          act={() =>
            unwrap(api.DELETE("/v1/budgets/{scope}/{period}/{unit}/{name}", { params: pathOf(budget) }))
          }
          done={t("budgets.removed", { name })}
          close={close}
        />
      )}
    />
  );
}

/** The names of this kind that the user can see; others can be typed. A revoked key has no budget. */
function useNames(scope: Scope, asked: boolean): string[] {
  const projects = useQuery({ ...projectsQuery, enabled: asked && scope === "project" });
  const users = useQuery({ ...usersQuery, enabled: asked && scope === "user" });
  const keys = useQuery({ ...keysQuery, enabled: asked && scope === "key" });
  const found: { name: string; revoked_at?: string | null }[] | undefined = {
    project: projects.data,
    user: users.data,
    key: keys.data,
  }[scope];
  return [...new Set((found ?? []).filter((one) => !one.revoked_at).map((one) => one.name))];
}

function BudgetForm({ base, close }: { base?: Budget; close: () => void }) {
  const [scope, setScope] = useState<Scope>(base?.scope ?? "project");
  const [name, setName] = useState(base?.name ?? "");
  const [unit, setUnit] = useState<BudgetUnit>(base?.unit ?? "gpu");
  const [period, setPeriod] = useState<Period>(base?.period ?? "month");
  const start = (value: number | null | undefined) =>
    value === null || value === undefined ? "" : fromLedger(base?.unit ?? "gpu", value);
  const [soft, setSoft] = useState<number | string>(start(base?.soft));
  const [hard, setHard] = useState<number | string>(start(base?.hard));
  const [stops, setStops] = useState(base?.policy === "stop");
  const names = useNames(scope, base === undefined);
  const amount = ` ${unitOf({ unit, period })}`;
  const limit = (value: number | string) => (value === "" ? null : toLedger(unit, Number(value)));
  const save = () =>
    unwrap(
      api.PUT("/v1/budgets/{scope}/{period}/{unit}/{name}", {
        params: pathOf({ scope, name: name.trim(), unit, period }),
        body: { soft: limit(soft), hard: limit(hard), policy: stops ? "stop" : "continue" },
      }),
    );
  return (
    <FormDialog
      title={base ? t("budgets.edit", { name }) : t("budgets.create")}
      verb={t("action.save")}
      ready={name.trim() !== "" && (soft !== "" || hard !== "")}
      save={save}
      done={t("budgets.saved", { name })}
      close={close}
    >
      {base ? null : (
        <>
          <Select
            label={t("quotas.scope")}
            allowDeselect={false}
            data={SCOPES.map((value) => ({ value, label: t(`ledger.${value}`) }))}
            value={scope}
            onChange={(value) => setScope(value as Scope)}
          />
          <Autocomplete
            label={t("field.name")}
            description={t("budgets.nameHelp")}
            required
            data-autofocus
            data={names}
            limit={50}
            value={name}
            onChange={setName}
          />
          <Select
            label={t("budgets.unit")}
            allowDeselect={false}
            data={BUDGET_UNITS.map((value) => ({ value, label: t(`budgets.${value}`) }))}
            value={unit}
            onChange={(value) => setUnit(value as BudgetUnit)}
          />
          <Select
            label={t("budgets.period")}
            allowDeselect={false}
            data={PERIODS.map((value) => ({ value, label: t(`budgets.per_${value}`) }))}
            value={period}
            onChange={(value) => setPeriod(value as Period)}
          />
        </>
      )}
      <NumberInput
        label={t("budgets.softLimit")}
        description={t("budgets.softHelp")}
        min={0}
        suffix={amount}
        value={soft}
        onChange={setSoft}
      />
      <NumberInput
        label={t("budgets.hardLimit")}
        description={t("budgets.hardHelp")}
        min={0}
        suffix={amount}
        value={hard}
        onChange={setHard}
      />
      <Checkbox
        label={t("budgets.stops")}
        description={t("budgets.stopsHelp")}
        checked={stops}
        onChange={(event) => setStops(event.currentTarget.checked)}
      />
    </FormDialog>
  );
}
