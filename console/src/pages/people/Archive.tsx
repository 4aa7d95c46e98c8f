import { Button } from "@mantine/core";
import { api, unwrap } from "@/api/client";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

interface Owner {
  kind: "projects" | "users";
  name: string;
}

/** Archives a project or user, or restores it. The manager refuses to archive what is in use. */
export function Archive({ kind, name, archived }: Owner & { archived: boolean }) {
  return archived ? (
    <Restore kind={kind} name={name} />
  ) : (
    <Opener
      label={t("archive.archive")}
      danger
      dialog={(close) => <ArchiveDialog kind={kind} name={name} close={close} />}
    />
  );
}

function ArchiveDialog({ kind, name, close }: Owner & { close: () => void }) {
  const params = { path: { name } };
  return (
    <Confirm
      title={t("archive.title", { name })}
      consequences={[t("archive.keys"), t("archive.live"), t("archive.keeps")]}
      verb={t("archive.archive")}
      act={async () => {
        await (kind === "projects"
          ? unwrap(api.POST("/v1/projects/{name}/archive", { params }))
          : unwrap(api.POST("/v1/users/{name}/archive", { params })));
      }}
      done={t("archive.archived", { name })}
      close={close}
    />
  );
}

function Restore({ kind, name }: Owner) {
  const params = { path: { name } };
  const restore = useAction(
    async () => {
      await (kind === "projects"
        ? unwrap(api.POST("/v1/projects/{name}/restore", { params }))
        : unwrap(api.POST("/v1/users/{name}/restore", { params })));
    },
    () => t("archive.restored", { name }),
  );
  return (
    <>
      <Button size="xs" variant="default" loading={restore.isPending} onClick={() => restore.mutate()}>
        {t("archive.restore")}
      </Button>
      {restore.error ? <Problem error={restore.error} /> : null}
    </>
  );
}
