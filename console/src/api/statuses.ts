// Sets of statuses. The tables have a row for every member of the REST models' types: the type check fails
// if a model gains one. tests/tidy/test_console_statuses.py compares them with the manager's sets.
import type { Schemas } from "./client";
import type { paths } from "./schema";

export type SessionStatus = Schemas["Status"];
/** The statuses by which sessions are listed, with the outcomes that are shown instead of TERMINATED. */
export type Status = NonNullable<
  NonNullable<paths["/v1/sessions"]["get"]["parameters"]["query"]>["status"]
>[number];
export type SessionType = Schemas["SessionType"];
type Outcome = Exclude<Status, SessionStatus>;
type Stage = "waiting" | "starting" | "running" | "stopping" | "ended";

const STAGES = {
  PENDING: "waiting",
  SCHEDULED: "starting",
  PREPARING: "starting",
  QUEUED: "starting",
  CREATING: "starting",
  RUNNING: "running",
  TERMINATING: "stopping",
  TERMINATED: "ended",
  CANCELLED: "ended",
  ERROR: "ended",
} as const satisfies Record<SessionStatus, Stage>;

const OUTCOMES: Record<Exclude<Schemas["Result"], "UNDEFINED">, Outcome> = {
  SUCCESS: "SUCCEEDED",
  FAILED: "FAILED",
};

const TYPE_ORDER: Record<SessionType, number> = { interactive: 0, batch: 1, inference: 2, system: 3 };

const every = Object.keys(STAGES) as SessionStatus[];

export const isLive = (status: SessionStatus) => STAGES[status] !== "ended";
export const STARTING = every.filter((status) => STAGES[status] === "starting");
export const STATUSES: Status[] = [
  ...every.filter(isLive),
  ...Object.values(OUTCOMES),
  ...every.filter((status) => !isLive(status)),
];
export const TYPES = Object.keys(TYPE_ORDER) as SessionType[];

/** The session status to show: a program that has ended has succeeded or failed. */
export function shownStatus(session: Pick<Schemas["SessionView"], "status" | "result">): Status {
  const { status, result } = session;
  return status === "TERMINATED" && result && result !== "UNDEFINED" ? OUTCOMES[result] : status;
}
