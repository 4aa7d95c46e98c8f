// A program with the generated types and openapi-fetch: node program.ts URL KEY
import createClient from "openapi-fetch";
import type { paths } from "./moorage-api.ts";

declare const process: { argv: string[] }; // of Node.js, without its package of types

const [url, key] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const body = { name: "generated-typescript", command: ["sleep", "1d"] };

const plan = await api.POST("/v1/sessions/plan", { body });
if (!plan.data) throw new Error(plan.error.detail);
const made = await api.POST("/v1/sessions", { body });
if (!made.data) throw new Error(made.error.detail);

const found = await api.GET("/v1/sessions/{ref}", { params: { path: { ref: made.data.name } } });
const page = await api.GET("/v1/sessions", { params: { query: { name: made.data.name } } });
const stopped = await api.POST("/v1/sessions/{ref}/stop", { params: { path: { ref: made.data.id } } });
const missing = await api.GET("/v1/sessions/{ref}", { params: { path: { ref: "no-such-session" } } });

console.log(
  JSON.stringify({
    places: plan.data.places.map((place) => place.agent_id),
    priority: found.data?.priority,
    listed: page.data?.items.map((one) => one.name),
    stopped: stopped.data?.status,
    missing: missing.error?.code,
  }),
);
