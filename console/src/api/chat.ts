import { who } from "./auth";
import { ApiProblem, api, unwrap } from "./client";
import { serverNow } from "./connection";
import { CONSOLE } from "./place";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

/** The address of the OpenAI-compatible API; empty if the manager does not know it. */
export async function chatAddress(): Promise<string> {
  const response = await fetch(`${CONSOLE}/settings.json`, { cache: "no-store" });
  return response.ok ? String(((await response.json()) as { openai_url?: string }).openai_url ?? "") : "";
}

const KEY_MS = 15 * 60_000;
const keys = new Map<string, { secret: string; until: number }>();

// Proxies know keys but not console sessions, so use a short-lived key for this model only.
async function keyFor(model: string): Promise<string> {
  const known = keys.get(model);
  if (known && known.until > serverNow() + 60_000) {
    return known.secret;
  }
  const until = serverNow() + KEY_MS;
  const name = `console-chat-${crypto.randomUUID?.().slice(0, 8) ?? Math.random().toString(36).slice(2, 10)}`;
  const body = {
    name,
    models: [model],
    scopes: ["models:use" as const],
    expires_at: new Date(until).toISOString(),
  };
  const made = await unwrap(api.POST("/v1/keys", { body: { ...body, user: who()?.user } }));
  keys.set(model, { secret: made.secret, until });
  return made.secret;
}

/** Ask a model through the manager, and yield its answer piece by piece. */
export async function chat(
  model: string,
  messages: Message[],
  signal: AbortSignal,
  piece: (text: string) => void,
): Promise<void> {
  const key = await keyFor(model);
  const body = JSON.stringify({ model, messages, stream: true, max_tokens: 512 });
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
  const ask = () => fetch(`${CONSOLE}/chat`, { method: "POST", credentials: "omit", headers, body, signal });
  let response = await ask();
  // It takes a moment until the proxies know a new key.
  for (let tries = 0; response.status === 401 && tries < 10; tries += 1) {
    await new Promise((resolve) => window.setTimeout(resolve, 300));
    response = await ask();
  }
  if (!response.ok || !response.body) {
    const problem = (await response.json().catch(() => null)) as { error?: { message?: string } } | null;
    throw new ApiProblem(
      response,
      problem?.error ? { title: String(response.status), detail: problem.error.message } : problem,
    );
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    text += value;
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") {
        piece(String(JSON.parse(data).choices?.[0]?.delta?.content ?? ""));
      }
    }
  }
}
