import { t } from "@/texts";

type Tone = "good" | "busy" | "wait" | "bad" | "off";

const TONES: Record<string, Tone> = {
  PENDING: "wait",
  QUEUED: "wait",
  SCHEDULED: "busy",
  PREPARING: "busy",
  CREATING: "busy",
  RUNNING: "good",
  TERMINATING: "busy",
  TERMINATED: "off",
  CANCELLED: "off",
  ERROR: "bad",
  SUCCEEDED: "good",
  FAILED: "bad",
  ALIVE: "good",
  SUSPECT: "wait",
  LOST: "bad",
  ready: "good",
  busy: "busy",
  queued: "wait",
  loading: "busy",
  degraded: "bad",
  not_loaded: "off",
  stopped: "off",
  draining: "wait",
  active: "good",
  disabled: "off",
  complete: "good",
  progressing: "busy",
  canary: "busy",
  waiting: "wait",
  failed: "bad",
  pending: "wait",
  running: "busy",
  succeeded: "good",
  skipped: "off",
  "reload-requested": "busy",
  "reload-reloaded": "good",
  "reload-failed": "bad",
  "reload-timed-out": "bad",
  within: "good",
  soft: "wait",
  exhausted: "bad",
};

const RESULTS: Record<string, string> = { SUCCESS: "SUCCEEDED", FAILED: "FAILED" };

/** The status of a session for people: a program that has ended has succeeded or failed. */
export function shownStatus(session: { status: string; result?: string }): string {
  return (session.status === "TERMINATED" && RESULTS[session.result ?? ""]) || session.status;
}

/** A status: a dot whose shape and colour tell its kind, and its name. */
export function StatusText({ status }: { status: string }) {
  return (
    <span className="status" data-tone={TONES[status] ?? "off"}>
      <span className="status-dot" aria-hidden="true" />
      {t(`status.${status}` as never, { defaultValue: status }) as string}
    </span>
  );
}
