import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { credentials, endSession } from "./auth";
import { ApiProblem, api, NoAnswer, send, unwrap } from "./client";
import { MANAGER } from "./place";

/** A directory of a session. Each listing runs a command there and counts as use of the session, so it is read
 * only when the user asks for it. */
export const directoryQuery = (session: string, kernel: string, path: string) =>
  queryOptions({
    queryKey: ["files", session, kernel, path],
    queryFn: () =>
      unwrap(
        api.GET("/v1/sessions/{ref}/files", { params: { path: { ref: session }, query: { kernel, path } } }),
      ),
    staleTime: 5000,
    refetchInterval: false,
    refetchOnWindowFocus: false,
    retry: false,
  });

const addressOf = (session: string, kernel: string, path: string) =>
  `${MANAGER}/v1/sessions/${encodeURIComponent(session)}/files/content?${new URLSearchParams({ path, kernel })}`;

/** Download a file as the browser downloads any file: to the disk, and beyond the life of this page. The browser
 * does not show why a download is refused, so the first bytes are asked for here. Throws `ApiProblem`. */
export async function download(session: string, kernel: string, path: string): Promise<void> {
  const address = addressOf(session, kernel, path);
  const asked = new AbortController();
  const answer = await send(address, { signal: asked.signal });
  if (!answer.ok) {
    throw new ApiProblem(answer, await answer.json().catch(() => null));
  }
  asked.abort();
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.click();
}

export interface Upload {
  id: number;
  session: string;
  /** The path in the session. */
  path: string;
  name: string;
  size: number;
  sent: number;
  state: "waiting" | "sending" | "stored" | "failed" | "cancelled";
  error?: unknown;
}

interface Task {
  upload: Upload;
  file: File;
  kernel: string;
  client: QueryClient;
  request?: XMLHttpRequest;
}

// Uploads go on while the user looks at other pages, so they belong to no component.
let tasks: Task[] = [];
let shown: Upload[] = [];
let last = 0;
const listeners = new Set<() => void>();

function changed(upload?: Upload, change: Partial<Upload> = {}) {
  if (upload) {
    Object.assign(upload, change);
  }
  shown = tasks.map((task) => ({ ...task.upload }));
  for (const listener of listeners) {
    listener();
  }
}

const unfinished = ({ upload: { state } }: Task) => state === "waiting" || state === "sending";

window.addEventListener("beforeunload", (event) => {
  if (tasks.some(unfinished)) {
    event.preventDefault();
  }
});

export function useUploads(): Upload[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => shown,
  );
}

/** Store files in a directory of the session, one after the other. */
export function upload(
  client: QueryClient,
  to: { session: string; kernel: string; directory: string },
  files: File[],
) {
  for (const file of files) {
    last += 1;
    const path = `${to.directory.replace(/\/$/, "")}/${file.name}`;
    tasks.push({
      upload: {
        id: last,
        session: to.session,
        path,
        name: file.name,
        size: file.size,
        sent: 0,
        state: "waiting",
      },
      file,
      kernel: to.kernel,
      client,
    });
  }
  changed();
  next();
}

function next() {
  const task = tasks.find(unfinished);
  if (task && task.upload.state === "waiting") {
    void run(task).then(next);
  }
}

async function run(task: Task) {
  const { upload: one, client } = task;
  changed(one, { state: "sending" });
  try {
    await put(task);
    changed(one, { state: "stored", sent: one.size });
  } catch (error) {
    if (one.state === "sending") {
      changed(one, { state: "failed", error });
    }
  }
  await client.invalidateQueries({ queryKey: ["files", one.session], refetchType: "active" });
}

/** The browser reads the file while it sends it. Only XMLHttpRequest reports how much it has sent. */
function put(task: Task): Promise<void> {
  const request = new XMLHttpRequest();
  task.request = request;
  return new Promise((resolve, reject) => {
    request.open("PUT", addressOf(task.upload.session, task.kernel, task.upload.path));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    for (const [name, value] of Object.entries(credentials("PUT"))) {
      request.setRequestHeader(name, value);
    }
    request.upload.onprogress = ({ loaded }) => changed(task.upload, { sent: loaded });
    request.onload = () => {
      if (request.status === 401) {
        endSession("expired");
      }
      if (request.status >= 200 && request.status < 300) {
        resolve();
      } else {
        reject(problemOf(request));
      }
    };
    // The answer to an upload that is refused early may not arrive, but the session's answer to a list does.
    request.onerror = () => cause(task).then(reject, reject);
    request.onabort = () => reject(new NoAnswer());
    request.send(task.file);
  });
}

function problemOf(request: XMLHttpRequest): ApiProblem {
  const headers = { "x-request-id": request.getResponseHeader("x-request-id") ?? "" };
  let body: unknown = null;
  try {
    body = JSON.parse(request.responseText);
  } catch {
    // A web server in front has answered.
  }
  return new ApiProblem(
    new Response(null, { status: request.status, statusText: request.statusText, headers }),
    body,
  );
}

async function cause(task: Task): Promise<unknown> {
  const directory = task.upload.path.slice(0, task.upload.path.lastIndexOf("/")) || "/";
  await directoryQuery(task.upload.session, task.kernel, directory).queryFn?.({} as never);
  return new CutOff();
}

/** The connection was lost while a file was sent, and the session is still there. */
export class CutOff extends Error {}

export function cancelUpload(id: number) {
  const task = tasks.find(({ upload: one }) => one.id === id);
  if (task && unfinished(task)) {
    changed(task.upload, { state: "cancelled" });
    task.request?.abort();
  }
}

/** Show finished uploads of the session no longer. */
export function forgetUploads(session: string) {
  tasks = tasks.filter((task) => task.upload.session !== session || unfinished(task));
  changed();
}
