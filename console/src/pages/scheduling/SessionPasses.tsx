import { serverNow } from "@/api/connection";
import { OF_SESSION, Passes, usePasses } from "./Passes";

/** The passes in which a session waited, was placed or was preempted. */
export default function SessionPasses({ id, group, since }: { id: string; group: string; since: string }) {
  const { query, rows, more } = usePasses(since, { group, session: id }, () => ({
    from: since,
    to: new Date(serverNow()).toISOString(),
  }));
  return <Passes query={query} rows={rows} more={more} columns={OF_SESSION} />;
}
