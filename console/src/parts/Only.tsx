import { type ReactNode, useRef } from "react";
import { type Right, useMay } from "@/api/auth";

/**
 * Whether the signed-in user has the right now, and whether that was ever so while this was shown. An open dialog must
 * outlive the right: it shows why the manager refused.
 */
export function useRight(may: Right): { now: boolean; ever: boolean } {
  const now = useMay(may);
  const ever = useRef(now);
  ever.current ||= now;
  return { now, ever: ever.current };
}

/** Actions that only those with this right see. The manager decides again for each request. */
export function Only({ may, children }: { may: Right; children: ReactNode }) {
  const right = useRight(may);
  return right.ever ? <div className={right.now ? "as-is" : "not-shown"}>{children}</div> : null;
}
