import { Button, Group, Select, Switch } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { ApiProblem, type Session, send } from "@/api/client";
import { visible } from "@/parts/format";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

// As much as one reads in a browser; the download has all of it.
const KEPT = 400_000;
const TAIL = 2000;
const DRAW_MS = 150;

export const kernelsOf = (session: Session) => [
  ...new Set((session.kernels ?? []).map((kernel) => kernel.hostname ?? "main1")),
];

/** The log of a kernel, followed while the session lives. Its text is never markup. */
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
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region has to be reachable by keyboard */}
      <pre className="log" ref={box} tabIndex={0} role="region" aria-label={t("session.logs")}>
        {text === "" ? (ended ? t("logs.empty") : t("logs.waiting")) : visible(text)}
      </pre>
    </>
  );
}

const address = (id: string, kernel: string, query: string) =>
  `/v1/sessions/${encodeURIComponent(id)}/logs?kernel=${encodeURIComponent(kernel)}&${query}`;

async function download(session: Session, kernel: string) {
  const response = await send(new URL(address(session.id, kernel, "tail=0"), window.location.origin).href);
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
    const read = async () => {
      const url = new URL(address(id, kernel, `tail=${TAIL}&follow=${live}`), window.location.origin).href;
      const response = await send(url, { signal: abort.signal });
      if (!response.ok || !response.body) {
        throw new ApiProblem(response, await response.json().catch(() => null));
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) {
          break;
        }
        whole = (whole + value).slice(-KEPT);
        timer ||= window.setTimeout(draw, Math.max(0, DRAW_MS - (Date.now() - drawn)));
      }
      draw();
      setEnded(true);
    };
    read().catch((failure) => {
      if (!abort.signal.aborted) {
        setError(failure);
      }
    });
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [id, kernel, live, attempt]);
  return { text, error, ended, retry: () => setAttempt(attempt + 1) };
}
