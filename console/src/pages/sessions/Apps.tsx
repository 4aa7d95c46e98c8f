import { Button, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { chatAddress } from "@/api/chat";
import { api, type Schemas, type Session, unwrap } from "@/api/client";
import { appsQuery } from "@/api/queries";
import { useAction } from "@/parts/actions";
import { visible } from "@/parts/format";
import { Command, Problem } from "@/parts/States";
import { StatusText } from "@/parts/Status";
import { t } from "@/texts";

type App = Schemas["AppView"];

/** The session's service ports and how to open them, and how to get a shell. */
export function Apps({ session }: { session: Session }) {
  const apps = useQuery({ ...appsQuery(session.id), enabled: session.status === "RUNNING" });
  const address = useQuery({
    queryKey: ["address"],
    queryFn: chatAddress,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (session.status !== "RUNNING") {
    return null;
  }
  const proxy = (address.data ?? "").replace(/\/v1\/?$/, "");
  return (
    <>
      <h2 className="part-title">{t("session.inside")}</h2>
      <div className="stack">
        <Command line={`moorage exec -it ${session.name} -- bash`} />
        {(apps.data ?? []).map((app) => (
          <AppLine key={app.name} session={session} app={app} proxy={proxy} />
        ))}
      </div>
    </>
  );
}

/** Opens an app in a separate tab, with an access token only for this app. */
function AppLine({ session, app, proxy }: { session: Session; app: App; proxy: string }) {
  const path = { ref: session.id, app: app.name };
  const open = useAction(async () => {
    const token = await unwrap(
      api.POST("/v1/sessions/{ref}/apps/{app}/access-tokens", { params: { path }, body: {} }),
    );
    const link = document.createElement("a");
    link.href = `${proxy}${token.path}/?access_token=${encodeURIComponent(token.access_token)}`;
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    link.click();
  });
  return (
    <div className="stack">
      <Group gap="sm">
        <span>
          <StatusText status={app.ready ? "ready" : "loading"} /> {visible(app.name)}
        </span>
        {app.protocol === "tcp" || proxy === "" ? null : (
          <Button
            size="xs"
            variant="default"
            disabled={!app.ready}
            loading={open.isPending}
            onClick={() => open.mutate()}
          >
            {t("session.openApp", { name: visible(app.name) })}
          </Button>
        )}
      </Group>
      {open.error ? <Problem error={open.error} /> : null}
      <Command
        line={`moorage ${app.protocol === "tcp" ? "port-forward" : "open"} ${session.name} ${app.name}`}
      />
    </div>
  );
}
