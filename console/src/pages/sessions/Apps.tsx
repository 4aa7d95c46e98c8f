import { useQuery } from "@tanstack/react-query";
import type { Session } from "@/api/client";
import { appsQuery } from "@/api/queries";
import { visible } from "@/parts/format";
import { Command } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { t } from "@/texts";

/** Its service ports, and how to open them; how to get a shell in it. */
export function Apps({ session }: { session: Session }) {
  const apps = useQuery({ ...appsQuery(session.id), enabled: session.status === "RUNNING" });
  if (session.status !== "RUNNING") {
    return null;
  }
  const name = session.name;
  return (
    <>
      <h2 className="part-title">{t("session.inside")}</h2>
      <div className="stack">
        <Command line={`moorage exec -it ${name} -- bash`} />
        {(apps.data ?? []).map((app) => (
          <div key={app.name} className="stack">
            <span>
              <StatusText status={app.ready ? "ready" : "loading"} /> {visible(app.name)}
            </span>
            <Command line={`moorage open ${name} ${app.name}`} />
          </div>
        ))}
      </div>
    </>
  );
}
