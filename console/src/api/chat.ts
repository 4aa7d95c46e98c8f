import { ApiProblem, send } from "./client";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

/** Where clients reach the OpenAI-compatible API; "" if the manager does not know it. */
export async function chatAddress(): Promise<string> {
  const response = await send(new URL("/console/settings.json", window.location.origin).href);
  return response.ok ? String(((await response.json()) as { openai_url?: string }).openai_url ?? "") : "";
}

/** Ask a model through the manager, and hand out its answer piece by piece. */
export async function chat(
  model: string,
  messages: Message[],
  signal: AbortSignal,
  piece: (text: string) => void,
): Promise<void> {
  const response = await send(new URL("/console/chat", window.location.origin).href, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model, messages, stream: true, max_tokens: 512 }),
    signal,
  });
  if (!response.ok || !response.body) {
    const body = (await response.json().catch(() => null)) as { error?: { message?: string } } | null;
    throw new ApiProblem(
      response,
      body?.error ? { title: String(response.status), detail: body.error.message } : body,
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
