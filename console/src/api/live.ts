import type { QueryClient } from "@tanstack/react-query";
import { BACKGROUND, endSession, refreshSession, signedIn } from "./auth";
import { backoffMs, isLive, noteAnswer, noteLive } from "./connection";
import { PREFIX } from "./place";
import { refreshAll } from "./queries";

// One browser tab holds this lock and the stream, and informs the other tabs: over HTTP/1.1, a browser opens
// six connections to a host, and a stream for each tab would use them up.
const LOCK = "moorage-events";
const CHANNEL = "moorage-events";
const SILENT_MS = 40_000;
const GATHER_MS = 250;
// Lists and counts are refetched at most this often, however much changes. Otherwise, a hundred open consoles would
// cost the manager more than the sessions do. The page of a session follows its own changes at once.
const SPACING_MS = 5000;
// When a stream opens, the page is just asking for its data: what may have changed in between is read again only after
// that, or each page would ask twice before it shows anything.
const RESET_MS = 2500;
// The manager has no stream: how long to wait before asking again.
const ABSENT_MS = 60_000;

interface Message {
  kinds?: string[];
  /** The ids and names of the sessions that changed. */
  sessions?: string[];
  reset?: boolean;
  live?: boolean;
}

/** The keys of lists of sessions; others are those of single sessions. */
const LISTS = new Set(["list", "pages"]);

const KEYS: Record<string, string[]> = {
  session: ["sessions", "overview", "occupancy"],
  agent: ["agents", "overview", "occupancy"],
  endpoint: ["endpoints"],
  group: ["groups", "overview"],
  budget: ["budgets", "endpoints"],
};

/** Follow the manager's events, in this tab or through another one, and refetch what has changed. */
export function followEvents(client: QueryClient) {
  const channel = new BroadcastChannel(CHANNEL);
  const gathered = new Set<string>();
  const sessions = new Set<string>();
  let timer = 0;
  let soon = 0;
  let reset = 0;
  let quietUntil = 0;

  function flush() {
    timer = 0;
    quietUntil = performance.now() + about(SPACING_MS);
    for (const key of gathered) {
      void client.invalidateQueries({
        queryKey: [key],
        refetchType: "active",
        predicate: ({ queryKey }) => key !== "sessions" || LISTS.has(String(queryKey[1])),
      });
    }
    gathered.clear();
  }

  function flushSessions() {
    soon = 0;
    const changed = new Set(sessions);
    sessions.clear();
    void client.invalidateQueries({
      queryKey: ["sessions"],
      refetchType: "active",
      predicate: ({ queryKey }) => changed.has(String(queryKey[1])),
    });
  }

  function receive(message: Message) {
    if (message.live !== undefined) {
      const cut = isLive() && !message.live;
      noteLive(message.live);
      if (cut) {
        // The answer shows whether the manager is down, and starts the polling that replaces the stream.
        void refreshAll(client);
      }
    }
    if (message.reset && reset === 0) {
      reset = window.setTimeout(() => {
        reset = 0;
        void refreshAll(client);
      }, about(RESET_MS));
    }
    for (const kind of message.kinds ?? []) {
      for (const key of KEYS[kind] ?? []) {
        gathered.add(key);
      }
    }
    for (const session of message.sessions ?? []) {
      sessions.add(session);
    }
    if (sessions.size > 0 && soon === 0) {
      soon = window.setTimeout(flushSessions, GATHER_MS);
    }
    if (gathered.size > 0 && timer === 0) {
      timer = window.setTimeout(flush, Math.max(GATHER_MS, quietUntil - performance.now()));
    }
  }

  channel.onmessage = (event: MessageEvent<Message>) => receive(event.data);
  void navigator.locks?.request(LOCK, () =>
    lead((message) => {
      channel.postMessage(message);
      receive(message);
    }),
  );
}

/** With jitter, so that not all consoles ask at the same moment. */
const about = (ms: number) => ms * (0.8 + 0.4 * Math.random());

const sleep = (ms: number) => new Promise((resolve) => window.setTimeout(resolve, ms));

async function lead(tell: (message: Message) => void): Promise<never> {
  let last = "";
  for (let failures = 0; ; failures += 1) {
    await signedIn();
    const ended = await read(last, tell, (id) => {
      last = id;
      failures = 0;
    });
    tell({ live: false });
    void refreshSession(); // the manager ends the stream of a user whose rights change
    await sleep(ended === "absent" ? ABSENT_MS : backoffMs(failures));
  }
}

async function read(
  last: string,
  tell: (message: Message) => void,
  seen: (id: string) => void,
): Promise<"absent" | "cut"> {
  const abort = new AbortController();
  let silence = window.setTimeout(() => abort.abort(), SILENT_MS);
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream", ...BACKGROUND };
    if (last) {
      headers["Last-Event-ID"] = last;
    }
    const response = await fetch(`${PREFIX}/v1/events`, { headers, signal: abort.signal, cache: "no-store" });
    if (response.status === 401) {
      endSession("expired");
    }
    if (!response.ok || response.body === null) {
      return [404, 405].includes(response.status) ? "absent" : "cut";
    }
    noteAnswer(response.headers.get("date"));
    tell({ live: true, reset: last === "" });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return "cut";
      }
      window.clearTimeout(silence);
      silence = window.setTimeout(() => abort.abort(), SILENT_MS);
      text += value;
      const end = text.lastIndexOf("\n\n");
      if (end >= 0) {
        dispatch(text.slice(0, end), tell, seen);
        text = text.slice(end + 2);
      }
    }
  } catch {
    return "cut";
  } finally {
    window.clearTimeout(silence);
    abort.abort();
  }
}

function dispatch(text: string, tell: (message: Message) => void, seen: (id: string) => void) {
  const kinds = new Set<string>();
  const sessions: string[] = [];
  for (const event of text.split("\n\n")) {
    for (const line of event.split("\n")) {
      if (line.startsWith("id:")) {
        seen(line.slice(3).trim());
      } else if (line.startsWith("event:")) {
        kinds.add(line.slice(6).trim());
      } else if (line.startsWith("data:")) {
        sessions.push(...sessionOf(line.slice(5)));
      }
    }
  }
  if (kinds.size > 0) {
    tell({ kinds: [...kinds], sessions, reset: kinds.has("reset") });
  }
}

function sessionOf(data: string): string[] {
  const change = JSON.parse(data) as { kind?: string; id?: string; name?: string };
  return change.kind === "session" ? [change.id ?? "", change.name ?? ""] : [];
}
