import { useSyncExternalStore } from "react";

// The key lives as long as the tab: sessionStorage is neither shared with other origins nor kept on disk.
const STORED = "moorage-key";

export type SignOutCause = "" | "expired" | "asked";
interface Auth {
  key: string;
  cause: SignOutCause;
}

let auth: Auth = { key: window.sessionStorage.getItem(STORED) ?? "", cause: "" };
const listeners = new Set<() => void>();

function change(next: Auth) {
  auth = next;
  for (const listener of listeners) {
    listener();
  }
}

export function credentials(): Record<string, string> {
  return auth.key ? { Authorization: `Bearer ${auth.key}` } : {};
}

export function signInWithKey(key: string) {
  window.sessionStorage.setItem(STORED, key);
  change({ key, cause: "" });
}

export function signOut(cause: SignOutCause) {
  if (auth.key) {
    window.sessionStorage.removeItem(STORED);
    change({ key: "", cause });
  }
}

/** Whether someone is signed in, and why not any more. */
export function useAuth(): Auth {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => auth,
  );
}
