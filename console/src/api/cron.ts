import { queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap, unwrapVersioned } from "./client";

export type CronJob = Omit<Schemas["CronJobView"], "spec"> & { spec: Schemas["CronJobSpec"] };
export type CronRun = Schemas["CronRunView"];
export type CalendarEntry = Schemas["CalendarEntry"];

export interface CronJobFilter {
  search?: string;
  sort?: "name" | "-name" | "created_at" | "-created_at";
}

// The manager shows the specification without secret values, so its schema is that of any object.
interface CronJobPage {
  items: CronJob[];
  next?: string | null;
}

export const cronJobPage = (filter: CronJobFilter, cursor?: string) =>
  unwrap(
    api.GET("/v1/cron-jobs", { params: { query: { limit: 50, ...filter, ...(cursor ? { cursor } : {}) } } }),
  ) as unknown as Promise<CronJobPage>;

export const cronJobQuery = (ref: string) =>
  queryOptions({
    queryKey: ["cron-jobs", ref],
    queryFn: () =>
      unwrapVersioned(api.GET("/v1/cron-jobs/{ref}", { params: { path: { ref } } })) as unknown as Promise<{
        value: CronJob;
        etag: string;
      }>,
    refetchInterval: 10_000,
  });

export const cronRunsQuery = (ref: string) =>
  queryOptions({
    queryKey: ["cron-jobs", ref, "runs"],
    queryFn: () =>
      unwrap(api.GET("/v1/cron-jobs/{ref}/runs", { params: { path: { ref }, query: { limit: 100 } } })),
    refetchInterval: 5_000,
  });

export const calendarQuery = (start: string, end: string) =>
  queryOptions({
    queryKey: ["calendar", start, end],
    queryFn: () => unwrap(api.GET("/v1/calendar", { params: { query: { start, end } } })),
    refetchInterval: 60_000,
  });
