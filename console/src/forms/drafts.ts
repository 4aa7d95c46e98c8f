import { who } from "@/api/auth";
import { MASK } from "./plans";
import type { Values } from "./values";

/**
 * What is being edited, so that a reload or a new sign-in does not lose it. A draft is in this tab only, belongs to one
 * user and project, and has no secrets. `auth.ts` deletes all drafts when the user signs out.
 */
export interface Draft {
  values: Values;
  /** What the object was when the draft began: an older draft would undo changes by others. */
  version: string;
}

const PREFIX = "moorage.draft";
// As `common/model/secret_names.py`.
const SECRET =
  /(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|(?:API|ACCESS|PRIVATE|SECRET|ENCRYPTION|SIGNING)_KEY)(?:_|$)/i;
// Names of stored secrets, not their values.
const NAMES = ["secret_env"];

/** Without the values of variables, and of everything whose name suggests a secret. The manager refuses the mask. */
export function withoutSecrets(value: unknown, isEnv = false): unknown {
  if (Array.isArray(value)) {
    return value.map((one) => withoutSecrets(one));
  }
  if (typeof value !== "object" || value === null) {
    return isEnv && value !== "" ? MASK : value;
  }
  const kept: Values = {};
  for (const [name, inner] of Object.entries(value)) {
    if (NAMES.includes(name) || isEnv || typeof inner === "object") {
      kept[name] = NAMES.includes(name) ? inner : withoutSecrets(inner, isEnv || name === "env");
    } else if (!SECRET.test(name)) {
      kept[name] = inner;
    }
  }
  return kept;
}

/** Where the draft of the present page is kept; "" if nobody is signed in. */
export function draftPlace(): string {
  const user = who();
  const page = window.location.pathname + window.location.search;
  return user ? `${PREFIX}:${user.user}:${user.project}:${page}` : "";
}

/** The draft, or null. `version`: what the object is now; a draft of another version is deleted. */
export function readDraft(place: string, version: string): Values | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(place) ?? "null") as Draft | null;
    if (found && found.version !== version) {
      forgetDraft(place);
      return null;
    }
    return found?.values ?? null;
  } catch {
    return null; // a browser that keeps nothing, or what another release wrote
  }
}

export function keepDraft(place: string, { values, version }: Draft) {
  try {
    sessionStorage.setItem(place, JSON.stringify({ values: withoutSecrets(values), version }));
  } catch {
    // It lasts until the page is left.
  }
}

export function forgetDraft(place: string) {
  try {
    sessionStorage.removeItem(place);
  } catch {
    // There is none.
  }
}
