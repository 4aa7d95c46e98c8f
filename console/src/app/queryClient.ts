import { QueryClient } from "@tanstack/react-query";
import { ApiProblem } from "@/api/client";
import { onRecovery } from "@/api/connection";
import { followEvents } from "@/api/live";
import { pollMs, refreshAll } from "@/api/queries";

export const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000,
      refetchInterval: () => pollMs(),
      retry: (failures, error) => !(error instanceof ApiProblem) && failures < 1,
      retryDelay: 500,
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

/** Keep the shown data current, through the event stream or otherwise by polling. */
export function startLive() {
  onRecovery(() => void refreshAll(client));
  followEvents(client);
}
