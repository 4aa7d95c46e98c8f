import { Button, Group, Select, Switch } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { ApiProblem, NoAnswer, type Session, send } from "@/api/client";
import { MANAGER } from "@/api/place";
import { visible } from "@/parts/format";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

// As much as people read in a browser; the download has everything.
const KEPT = 400_000;
const TAIL = 2000;
const DRAW_MS = 150;
// How long an outage or a reading without progress can last before the problem is shown.
const OUTAGE_MS = 30_000;
const PAUSE_MS = 500;
const PASSING = [429, 502, 503, 504];

export const kernelsOf = (session: Session) => [
  ...new Set((session.kernels ?? []).map((kernel) => kernel.hostname ?? "main1")),
];

/** The log of a kernel, followed while the session lives. Its text is never treated as markup. */
export function Logs({ session, live }: { session: Session; live: boolean }) {
  const hosts = kernelsOf(session);
  const [kernel, setKernel] = useState(hosts[0] ?? "main1");
  const [follow, setFollow] = useState(true);
  const { text, error, ended, retry } = useLog(session.id, kernel, live);
  const box = useRef<HTMLPreElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new text scrolls to the end
  useEffect(() => {
    if (follow && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [text, follow]);
  return (
    <>
      <Group justify="space-between" mb="sm" gap="sm">
        <Group gap="sm">
          {hosts.length > 1 ? (
            <Select
              size="xs"
              aria-label={t("session.kernel")}
              allowDeselect={false}
              data={hosts}
              value={kernel}
              onChange={(value) => setKernel(value ?? "main1")}
            />
          ) : null}
          <Switch
            size="sm"
            label={t("logs.follow")}
            checked={follow}
            onChange={(event) => setFollow(event.currentTarget.checked)}
          />
        </Group>
        <Button size="xs" variant="default" onClick={() => void download(session, kernel)}>
          {t("logs.download")}
        </Button>
      </Group>
      {error ? <Problem error={error} retry={retry} /> : null}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard */}
      <pre className="log" ref={box} tabIndex={0} role="region" aria-label={t("session.logs")}>
        {text === "" ? (ended ? t("logs.empty") : t("logs.waiting")) : visible(text)}
      </pre>
    </>
  );
}

const address = (id: string, kernel: string, query: string) =>
  `/v1/sessions/${encodeURIComponent(id)}/logs?kernel=${encodeURIComponent(kernel)}&${query}`;

async function download(session: Session, kernel: string) {
  const response = await send(`${MANAGER}${address(session.id, kernel, "tail=0")}`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${session.name}-${kernel}.log`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function useLog(id: string, kernel: string, live: boolean) {
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [ended, setEnded] = useState(false);
  const [attempt, setAttempt] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `attempt` reads it again
  useEffect(() => {
    const abort = new AbortController();
    let whole = "";
    let drawn = 0;
    let timer = 0;
    setText("");
    setError(null);
    setEnded(false);
    const draw = () => {
      timer = 0;
      drawn = Date.now();
      setText(whole);
    };
    const append = (more: string) => {
      whole = (whole + more).slice(-KEPT);
      timer ||= window.setTimeout(draw, Math.max(0, DRAW_MS - (Date.now() - drawn)));
    };
    follow(id, kernel, live, abort.signal, append).then(
      () => {
        draw();
        setEnded(true);
      },
      (failure) => {
        if (!abort.signal.aborted) {
          draw();
          setError(failure);
        }
      },
    );
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [id, kernel, live, attempt]);
  return { text, error, ended, retry: () => setAttempt(attempt + 1) };
}

/** The place where a log continues: after this byte of this attempt. */
interface Place {
  offset: number;
  attempt: string;
}

/**
 * Deliver a log to its end, across answers that are cut off: each continues after the last byte received. Throws
 * the cause that the manager names, or the last error after an outage without progress.
 */
async function follow(
  id: string,
  kernel: string,
  live: boolean,
  signal: AbortSignal,
  append: (more: string) => void,
) {
  const reading = new Reading(append);
  let down: number | null = null;
  for (;;) {
    const began = Date.now();
    const before = reading.place?.offset;
    try {
      return await reading.once(address(id, kernel, `follow=${live}&${reading.query()}`), signal);
    } catch (failure) {
      const now = Date.now();
      const moved = reading.place !== null && reading.place.offset !== before;
      // A connection that was silent for longer than an outage can last was established.
      down = moved || now - began > OUTAGE_MS ? now : (down ?? now);
      const passing = !(failure instanceof ApiProblem) || PASSING.includes(failure.status);
      const goesOn = reading.place !== null && (moved || (live && now - down <= OUTAGE_MS));
      if (signal.aborted || !passing || !goesOn) {
        throw failure;
      }
    }
    await new Promise((resolve) => window.setTimeout(resolve, PAUSE_MS));
  }
}

class Reading {
  place: Place | null = null;
  private readonly decoder = new TextDecoder();

  constructor(private readonly append: (more: string) => void) {}

  query(): string {
    return this.place === null
      ? `tail=${TAIL}&offset=0`
      : `tail=0&offset=${this.place.offset}&attempt=${this.place.attempt}`;
  }

  async once(path: string, signal: AbortSignal) {
    const response = await send(`${MANAGER}${path}`, { signal });
    if (!response.ok || !response.body) {
      throw new ApiProblem(response, await response.json().catch(() => null));
    }
    this.begin(response.headers);
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new NoAnswer();
      });
      if (done) {
        this.append(this.decoder.decode());
        return;
      }
      if (this.place) {
        this.place.offset += value.length;
      }
      this.append(this.decoder.decode(value, { stream: true }));
    }
  }

  private begin(headers: Headers) {
    const told = headers.get("x-moorage-log-offset");
    const offset = Number(told);
    if (told === null) {
      this.place = null; // from an agent of an older release, which cannot be continued
      return;
    }
    if (this.place && offset > this.place.offset) {
      this.append(`${this.decoder.decode()}\n${t("logs.lost")}\n`);
    }
    this.place = { offset, attempt: headers.get("x-moorage-log-attempt") ?? "1" };
  }
}
