import { useSyncExternalStore } from "react";

// The outcome of the last action. Screen readers announce it politely, and nothing else.
let outcome = "";
let timer = 0;
const listeners = new Set<() => void>();

export function announce(text: string, shownMs = 6000) {
  outcome = text;
  window.clearTimeout(timer);
  timer = window.setTimeout(() => announce(""), shownMs);
  for (const listener of listeners) {
    listener();
  }
}

export function Outcomes() {
  const text = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => outcome,
  );
  return (
    <div aria-live="polite" className="outcome" data-shown={text !== ""}>
      {text}
    </div>
  );
}
