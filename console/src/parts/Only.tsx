import type { ReactNode } from "react";
import { type Right, useMay } from "@/api/auth";

/** Actions that only those with this right see. The manager decides again for each request. */
export function Only({ may, children }: { may: Right; children: ReactNode }) {
  return useMay(may) ? children : null;
}
