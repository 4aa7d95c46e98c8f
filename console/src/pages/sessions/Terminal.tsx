import { Button, Group, Select } from "@mantine/core";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { getNonce } from "get-nonce";
import { useEffect, useRef, useState } from "react";
import "@xterm/xterm/css/xterm.css";
import { ApiProblem, type Session, send } from "@/api/client";
import { MANAGER } from "@/api/place";
import { Problem } from "@/parts/States";
import { t } from "@/texts";
import { kernelsOf } from "./Logs";

// The protocol of `moorage exec`: each message is a channel and its data.
const PROTOCOL = "exec.v1.moorage";
const STDIN = 0;
const STATUS = 3;
const RESIZE = 4;

interface End {
  exit_code?: number | null;
  detail?: string;
  next_step?: string;
}

// xterm adds style elements, which the page's policy allows only with its nonce.
const createElement = document.createElement.bind(document);
document.createElement = ((name: string, options?: ElementCreationOptions) => {
  const element = createElement(name, options);
  if (name === "style") {
    element.nonce = getNonce() ?? "";
  }
  return element;
}) as typeof document.createElement;

function framed(channel: number, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const message = new Uint8Array(1 + data.length);
  message[0] = channel;
  message.set(data, 1);
  return message;
}

/** A shell in the session. Runtimes and types without commands refuse it, and the refusal gives the reason. */
export default function Terminal({ session }: { session: Session }) {
  const kernels = kernelsOf(session);
  const [kernel, setKernel] = useState(kernels[0] ?? "main1");
  const [attempt, setAttempt] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const { end, error } = useShell(box, session.id, kernel, attempt);
  return (
    <>
      <Group justify="space-between" mb="sm">
        {kernels.length > 1 ? (
          <Select
            size="xs"
            aria-label={t("session.kernel")}
            allowDeselect={false}
            data={kernels}
            value={kernel}
            onChange={(value) => setKernel(value ?? "main1")}
          />
        ) : null}
        {end || error ? (
          <Button size="xs" variant="default" onClick={() => setAttempt(attempt + 1)}>
            {t("terminal.again")}
          </Button>
        ) : null}
      </Group>
      {error ? <Problem error={error} /> : null}
      {end ? (
        <p role="status" className="dim">
          {end.detail
            ? `${t("terminal.failed")}: ${end.detail}. ${end.next_step ?? ""}`
            : t("terminal.ended", { code: end.exit_code ?? "?" })}
        </p>
      ) : null}
      <section className="terminal" ref={box} aria-label={t("session.terminal")} hidden={error !== null} />
    </>
  );
}

function useShell(box: React.RefObject<HTMLElement | null>, id: string, kernel: string, attempt: number) {
  const [end, setEnd] = useState<End | null>(null);
  const [error, setError] = useState<unknown>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `attempt` starts the effect again
  useEffect(() => {
    const element = box.current;
    if (!element) {
      return;
    }
    setEnd(null);
    setError(null);
    element.hidden = false;
    const screen = new Xterm({ cursorBlink: false, fontSize: 13, screenReaderMode: true, scrollback: 5000 });
    const fit = new FitAddon();
    screen.loadAddon(fit);
    screen.open(element);
    fit.fit();
    const path = `/v1/sessions/${encodeURIComponent(id)}/exec`;
    const socket = new WebSocket(`${MANAGER.replace(/^http/, "ws")}${path}`, PROTOCOL);
    socket.binaryType = "arraybuffer";
    const text = new TextEncoder();
    const open = () => socket.readyState === WebSocket.OPEN;
    let began = false;
    let left = false;
    let over = false;
    const size = () => ({ rows: screen.rows, cols: screen.cols });
    socket.onopen = () => {
      began = true;
      const command = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i || exec sh -i"];
      const env = { TERM: "xterm-256color" };
      socket.send(JSON.stringify({ command, tty: true, stdin: true, size: size(), kernel, env }));
      screen.focus();
    };
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer>) => {
      const message = new Uint8Array(data);
      if (message[0] === STATUS) {
        over = true;
        setEnd(JSON.parse(new TextDecoder().decode(message.subarray(1))) as End);
      } else {
        screen.write(message.subarray(1));
      }
    };
    socket.onclose = () => {
      if (left || over) {
        return;
      }
      if (began) {
        setEnd({ detail: t("terminal.cut") });
        return;
      }
      // Browsers do not report why a WebSocket was refused, but the same request without a WebSocket shows it.
      why(path).then(setError, setError);
    };
    const typed = screen.onData((data) => open() && socket.send(framed(STDIN, text.encode(data))));
    const resized = screen.onResize(
      () => open() && socket.send(framed(RESIZE, text.encode(JSON.stringify(size())))),
    );
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(element);
    return () => {
      left = true;
      observer.disconnect();
      typed.dispose();
      resized.dispose();
      socket.close();
      screen.dispose();
    };
  }, [id, kernel, attempt]);
  return { end, error };
}

async function why(path: string): Promise<ApiProblem> {
  const answer = await send(`${MANAGER}${path}`);
  return new ApiProblem(answer, await answer.json().catch(() => null));
}
