import { type StatusName, t } from "@/texts";

type Tone = "good" | "busy" | "wait" | "bad" | "off";

const TONES: Record<StatusName, Tone> = {
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
  FAULTY: "bad",
  healthy: "good",
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
  archived: "off",
  complete: "good",
  progressing: "busy",
  canary: "busy",
  waiting: "wait",
  failed: "bad",
  pending: "wait",
  running: "busy",
  succeeded: "good",
  skipped: "off",
  starting: "busy",
  refused: "bad",
  missed: "wait",
  removed: "off",
  suspended: "off",
  "reload-requested": "busy",
  "reload-reloaded": "good",
  "reload-failed": "bad",
  "reload-timed-out": "bad",
  "reload-ended": "off",
  within: "good",
  soft: "wait",
  exhausted: "bad",
};

/** The kind of a status. A newer manager may report one that this console does not know. */
export function toneOf(status: StatusName): Tone {
  return (TONES as Partial<Record<StatusName, Tone>>)[status] ?? "off";
}

/** A status: its name, and a dot whose shape and colour show its kind. */
export function StatusText({ status }: { status: StatusName }) {
  return (
    <span className="status" data-tone={toneOf(status)}>
      <span className="status-dot" aria-hidden="true" />
      {t(`status.${status}`)}
    </span>
  );
}
