import { Button } from "@mantine/core";
import { api, unwrap } from "@/api/client";
import { Confirm, Opener, useAction } from "@/parts/actions";
import { Problem } from "@/parts/States";
import { t } from "@/texts";

interface Owner {
  kind: "projects" | "users";
  name: string;
}

export const archiveOwner = ({ kind, name }: Owner): Promise<unknown> =>
  kind === "projects"
    ? unwrap(api.POST("/v1/projects/{name}/archive", { params: { path: { name } } }))
    : unwrap(api.POST("/v1/users/{name}/archive", { params: { path: { name } } }));

export const restoreOwner = ({ kind, name }: Owner): Promise<unknown> =>
  kind === "projects"
    ? unwrap(api.POST("/v1/projects/{name}/restore", { params: { path: { name } } }))
    : unwrap(api.POST("/v1/users/{name}/restore", { params: { path: { name } } }));

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
  return (
    <Confirm
      title={t("archive.title", { name })}
      consequences={[t("archive.keys"), t("archive.live"), t("archive.keeps")]}
      verb={t("archive.archive")}
      act={() => archiveOwner({ kind, name })}
      done={t("archive.archived", { name })}
      close={close}
    />
  );
}

function Restore({ kind, name }: Owner) {
  const restore = useAction(
    () => restoreOwner({ kind, name }),
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
