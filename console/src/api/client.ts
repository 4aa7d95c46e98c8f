import createClient from "openapi-fetch";
import { credentials, endSession, refreshSession } from "./auth";
import { noteAnswer, noteSilence } from "./connection";
import { MANAGER } from "./place";
import type { components, paths } from "./schema";
import { noteUnreadable } from "./unreadable";

export type Schemas = components["schemas"];
export type Session = Schemas["SessionView"];
export type Agent = Schemas["AgentView"];
export type Group = Schemas["GroupView"];
export type Endpoint = Schemas["EndpointView"];
export type Key = Schemas["KeyView"];
export type SshKey = Schemas["SshKeyView"];
export type Secret = Schemas["SecretView"];
export type Subscription = Schemas["SubscriptionView"];
export type Workspace = Schemas["WorkspaceView"];
export type Price = Schemas["PriceView"];
export type ManagerView = Schemas["ManagerView"];
export type Peer = Schemas["PeerView"];
export type JoinToken = Schemas["JoinTokenView"];
export type User = Schemas["UserView"];
export type Project = Schemas["ProjectView"];
export type Qos = Schemas["QosView"];
export type Quota = Schemas["QuotaView"];
export type Budget = Schemas["BudgetView"];
export type Pipeline = Schemas["PipelineView"];
export type PipelineStep = Schemas["StepView"];
export type ModelUsage = Schemas["ModelUsage"];

/** An unsuccessful answer, as described by the manager (RFC 9457). */
export class ApiProblem extends Error {
  readonly status: number;
  readonly title: string;
  readonly code: string;
  readonly nextStep: string;
  readonly requestId: string;
  readonly fields: { field: string; message: string }[];

  constructor(response: Response, body: unknown) {
    const problem = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
    super(String(problem.detail ?? response.statusText ?? response.status));
    this.status = response.status;
    this.title = String(problem.title ?? response.status);
    this.code = String(problem.code ?? "");
    this.nextStep = String(problem.next_step ?? "");
    this.requestId = response.headers.get("x-request-id") ?? "";
    this.fields = (problem.errors as ApiProblem["fields"] | undefined) ?? [];
  }
}

/** No answer arrived: the manager is restarting, or the network is down. */
export class NoAnswer extends Error {}

/** Like `fetch`, with the signed-in user's credentials; the outcome updates the connection state. */
export async function send(input: Request | string, init?: RequestInit): Promise<Response> {
  const request = new Request(input, { cache: "no-store", ...init });
  for (const [name, value] of Object.entries(credentials(request.method))) {
    request.headers.set(name, value);
  }
  let response: Response;
  try {
    response = await fetch(request);
  } catch (error) {
    if (request.signal.aborted) {
      throw error;
    }
    noteSilence();
    throw new NoAnswer();
  }
  if ([502, 503, 504].includes(response.status)) {
    noteSilence();
  } else {
    noteAnswer(response.headers.get("date"));
  }
  if (response.status === 401) {
    endSession("expired");
  }
  if (response.status === 403) {
    void refreshSession(); // perhaps the user has lost a right since
  }
  return response;
}

export const api = createClient<paths>({ baseUrl: MANAGER, fetch: send });

interface Outcome<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of a call's outcome. Throws `ApiProblem`. */
export async function unwrap<T>(call: Promise<Outcome<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok || data === undefined) {
    throw new ApiProblem(response, error);
  }
  noteUnreadable(response.url, data);
  return data;
}

/** Like `unwrap`, with the answer's ETag. */
export async function unwrapVersioned<T>(call: Promise<Outcome<T>>): Promise<{ value: T; etag: string }> {
  const outcome = await call;
  return {
    value: await unwrap(Promise.resolve(outcome)),
    etag: outcome.response.headers.get("etag") ?? "",
  };
}

/** The ETag of an item in a list. */
export const etagOf = (item?: { version?: number }) => `"${item?.version ?? 0}"`;
