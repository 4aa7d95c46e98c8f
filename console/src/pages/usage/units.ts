import type { Schemas } from "@/api/client";
import { inCurrency, type Unit, units } from "@/charts/units";
import { money, number } from "@/parts/format";

export type BudgetUnit = Schemas["BudgetView"]["unit"];

/** The amounts in a ledger row, in the units of the REST API. */
export const MEASURES = [
  "gpu_ms",
  "cpu_ms",
  "memory_mib_s",
  "node_ms",
  "requests",
  "tokens_in",
  "tokens_out",
  "cost",
] as const;
export type Measure = (typeof MEASURES)[number];

/** Two decimals, or more if the amount is less than one. */
export const fine = (value: number) => number(value, Math.abs(value) < 1 ? 4 : 2);

const HOUR_MS = 3_600_000;
const GIB_HOUR = 1024 * 3600;
const MILLION = 1_000_000;

const SCALES: Record<Measure, number> = {
  gpu_ms: HOUR_MS,
  cpu_ms: HOUR_MS,
  memory_mib_s: GIB_HOUR,
  node_ms: HOUR_MS,
  requests: 1,
  tokens_in: 1,
  tokens_out: 1,
  cost: MILLION,
};

/** Hours, GiB hours or money, as people write them. */
export const scaled = (measure: Measure, value: number) => value / SCALES[measure];
export const amountText = (measure: Measure, value: number, currency: string) =>
  measure === "cost" ? money(scaled(measure, value), currency) : fine(scaled(measure, value));

/** A price, with more decimals than a cost if it is less than one. */
export const priceText = (value: number, currency: string) =>
  currency === "" ? fine(value) : money(value, currency, Math.abs(value) < 1 ? 4 : 2);

/** How a chart writes the amounts of a measure. */
export const measureUnit = (measure: Measure, currency: string): Unit =>
  measure === "cost" && currency !== "" ? inCurrency(currency) : units.plain;

/** The ledger amount for one budget unit. */
const UNITS: Record<BudgetUnit, number> = {
  gpu: HOUR_MS,
  cpu: HOUR_MS,
  node: HOUR_MS,
  memory: GIB_HOUR,
  money: MILLION,
  requests: 1,
  tokens: 1,
  tokens_in: 1,
  tokens_out: 1,
};
export const BUDGET_UNITS = Object.keys(UNITS) as BudgetUnit[];

export const toLedger = (unit: BudgetUnit, value: number) => Math.round(value * UNITS[unit]);
export const fromLedger = (unit: BudgetUnit, value: number) => value / UNITS[unit];
export const budgetText = (unit: BudgetUnit, value: number, currency: string) =>
  unit === "money" ? money(fromLedger(unit, value), currency) : fine(fromLedger(unit, value));
