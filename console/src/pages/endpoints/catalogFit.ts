import { api, unwrap } from "@/api/client";

/** How a model of the catalogue fits a group now. */
export const fitQuery = (model: string, group: string, context: number) => ({
  queryKey: ["agents", "catalog", model, group, context],
  queryFn: () =>
    unwrap(
      api.GET("/v1/catalog/{model}", {
        params: { path: { model }, query: { resource_group: group, context } },
      }),
    ),
});
