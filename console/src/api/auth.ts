import { useSyncExternalStore } from "react";
import { backoffMs, noteAnswer, noteSilence } from "./connection";
import { PREFIX } from "./place";
import type { components } from "./schema";

declare global {
  interface Window {
    /** The answer to the question that `start.js` asked before the console was loaded; null: there was none. */
    moorageSession?: Promise<Response | null>;
  }
}

export type Who = components["schemas"]["WhoAmI"];
export type SignOutCause = "" | "expired" | "asked";

/** `known`: false until the manager has reported who is signed in. The cookie itself is invisible to scripts. */
interface Auth {
  known: boolean;
  who: Who | null;
  cause: SignOutCause;
}

let auth: Auth = { known: false, who: null, cause: "" };
const listeners = new Set<() => void>();

function change(next: Auth) {
  auth = next;
  for (const listener of listeners) {
    listener();
  }
}

// Marks a request that was not caused by the user, so that it does not keep the console session alive.
export const BACKGROUND = { "X-Moorage-Background": "1" };
const ACT_MS = 30_000;
let actedAt = Date.now();
for (const act of ["pointerdown", "keydown", "wheel"]) {
  window.addEventListener(act, () => (actedAt = Date.now()), { capture: true, passive: true });
}

/** Headers in addition to the cookie, with which writes prove that they come from this page. */
export function credentials(method: string): Record<string, string> {
  if (method !== "GET" && method !== "HEAD") {
    return { "X-CSRF-Token": auth.who?.csrf_token ?? "" };
  }
  return Date.now() - actedAt > ACT_MS ? BACKGROUND : {};
}

export const who = () => auth.who;

/** Resolves when a user is signed in. */
export function signedIn(): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (auth.who) {
        listeners.delete(look);
        resolve();
      }
    };
    listeners.add(look);
    look();
  });
}

export function beginSession(who: Who) {
  change({ known: true, who, cause: "" });
}

/** Delete what `forms/drafts.ts` keeps for the user. A session that expires keeps it. */
export function forgetDrafts() {
  try {
    for (const name of Object.keys(sessionStorage).filter((one) => one.startsWith("moorage.draft:"))) {
      sessionStorage.removeItem(name);
    }
  } catch {
    // A browser that keeps nothing.
  }
}

export function endSession(cause: SignOutCause) {
  if (cause === "asked") {
    forgetDrafts();
  }
  if (auth.who) {
    change({ known: true, who: null, cause });
  }
}

/** Ask who is signed in, until the manager answers. */
export async function findSession(): Promise<void> {
  for (let failures = 0; !auth.known; failures += 1) {
    try {
      const response =
        (failures === 0 ? await window.moorageSession : null) ??
        (await fetch(`${PREFIX}/v1/session`, { cache: "no-store" }));
      if (response.ok) {
        noteAnswer(response.headers.get("date"));
        beginSession((await response.json()) as Who);
        return;
      }
      if (response.status < 500) {
        change({ known: true, who: null, cause: "" });
        return;
      }
    } catch {
      // It does not answer, so ask again.
    }
    noteSilence();
    await new Promise((resolve) => window.setTimeout(resolve, backoffMs(failures)));
  }
}

let asking = false;

/** Ask again what the signed-in user may do. Without an answer, nothing changes. */
export async function refreshSession(): Promise<void> {
  if (asking || !auth.who) {
    return;
  }
  asking = true;
  try {
    const response = await fetch(`${PREFIX}/v1/session`, { cache: "no-store", headers: BACKGROUND });
    if (response.status === 401) {
      endSession("expired");
    } else if (response.ok) {
      const who = (await response.json()) as Who;
      if (auth.who && JSON.stringify(who) !== JSON.stringify(auth.who)) {
        change({ ...auth, who });
      }
    }
  } catch {
    // The next request reports the outage.
  } finally {
    asking = false;
  }
}

/** Who is signed in, or why nobody is any more. */
export function useAuth(): Auth {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => auth,
  );
}

/** Whether the signed-in user administers the platform, or can at least read all of it. */
export function usePlatformRole(): "admin" | "auditor" | "" {
  const { who } = useAuth();
  return who?.role === "admin" || who?.role === "auditor" ? who.role : "";
}

/** "administer": everything. "change": create and stop what belongs to the project. */
export type Right = "administer" | "change";

const CHANGING = ["member", "project-admin", "admin"];

/** Whether the signed-in user has the right, by the role that the manager reported last. */
export function useMay(right: Right): boolean {
  const { who } = useAuth();
  if (!who) {
    return false;
  }
  const inProject = who.projects?.[who.project] ?? "";
  return right === "administer"
    ? who.role === "admin"
    : CHANGING.includes(who.role) || CHANGING.includes(inProject);
}
