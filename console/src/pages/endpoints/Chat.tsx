import { Button, Group, Textarea } from "@mantine/core";
import { type FormEvent, useRef, useState } from "react";
import { chat, type Message } from "@/api/chat";
import { visible } from "@/parts/format";
import { Empty, Problem } from "@/parts/States";
import { t } from "@/texts";

/** A conversation to try out a model. It is not saved. */
export default function Chat({ model, ready }: { model: string; ready: boolean }) {
  const [messages, setMessages] = useState<Message[]>([]);
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [abort, setAbort] = useState<AbortController | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const ask = async (event: FormEvent) => {
    event.preventDefault();
    const asked: Message[] = [...messages, { role: "user", content: text }];
    const stop = new AbortController();
    setAbort(stop);
    setError(null);
    setText("");
    let answer = "";
    setMessages([...asked, { role: "assistant", content: "" }]);
    try {
      await chat(model, asked, stop.signal, (piece) => {
        answer += piece;
        setMessages([...asked, { role: "assistant", content: answer }]);
        box.current?.scrollTo(0, box.current.scrollHeight);
      });
    } catch (failure) {
      if (!stop.signal.aborted) {
        setError(failure);
      }
    } finally {
      setAbort(null);
    }
  };
  return (
    <form onSubmit={ask} className="stack">
      {messages.length === 0 ? <Empty title={ready ? t("chat.empty") : t("chat.asleep")} /> : null}
      <div className="chat" ref={box} aria-live="polite" aria-busy={abort !== null}>
        {messages.map((message, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: messages are only appended
          <div key={index} className={message.role === "user" ? "from-user" : ""}>
            <p>{visible(message.content) || "…"}</p>
          </div>
        ))}
      </div>
      {error ? <Problem error={error} /> : null}
      <Textarea
        label={t("chat.message")}
        autosize
        minRows={2}
        maxRows={8}
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
      />
      <Group justify="flex-end" gap="xs">
        {abort ? (
          <Button variant="default" onClick={() => abort.abort()}>
            {t("chat.stop")}
          </Button>
        ) : null}
        <Button type="submit" disabled={text.trim() === "" || abort !== null}>
          {t("chat.send")}
        </Button>
      </Group>
    </form>
  );
}
