import { api, type Schemas, unwrap } from "@/api/client";
import { brief, type Values } from "./values";

export type Plan = Schemas["PlanView"];
export type PipelinePlan = Schemas["PlannedPipeline"];

/** Where a session would be placed now. Creates nothing. */
export const planSession = (spec: Values) => unwrap(api.POST("/v1/sessions/plan", { body: spec as never }));

export const planTemplate = (name: string, run: Values) =>
  unwrap(api.POST("/v1/templates/{name}/sessions/plan", { params: { path: { name } }, body: run as never }));

export const planPipeline = (spec: Values) => unwrap(api.POST("/v1/pipelines/plan", { body: spec as never }));

// What an endpoint has beyond the session that a replica is.
const OF_ENDPOINT = [
  "name",
  "replicas",
  "autoscale",
  "rollout",
  "routing",
  "resource_groups",
  "adapters",
  "limits",
  "shared_with",
];

/** Without hidden values, which matter to no dry run. */
export function withoutHidden(spec: Values): Values {
  const env = Object.entries((spec.env ?? {}) as Values).filter(([, value]) => value !== MASK);
  return { ...spec, env: Object.fromEntries(env) };
}

/** Where a replica of an endpoint would be placed now: it is a session that runs the same. */
export function planReplica(spec: Values): Promise<Plan> {
  const groups = spec.resource_groups;
  const session: Values = Object.fromEntries(
    Object.entries(spec).filter(([name]) => !OF_ENDPOINT.includes(name)),
  );
  if (Array.isArray(groups) && groups.length > 0) {
    session.resource_group = groups[0];
  }
  return planSession({ ...session, type: "inference" });
}

// What a manager set, or what can be true only once.
const ONCE = ["name", "job", "starts_at", "secret"];

/** A specification that starts the same again. */
export function again(spec: object): Values {
  const kept = brief(spec);
  for (const name of ONCE) {
    delete kept[name];
  }
  return kept;
}

export const MASK = "***";

/** The variables whose values the manager hides, and which therefore must be entered again. */
export function hiddenIn(value: unknown, at = ""): string[] {
  if (value === MASK) {
    return [at];
  }
  return typeof value === "object" && value !== null
    ? Object.entries(value).flatMap(([name, inner]) => hiddenIn(inner, at ? `${at}.${name}` : name))
    : [];
}
