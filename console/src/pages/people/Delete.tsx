import { useNavigate } from "@tanstack/react-router";
import { api, unwrap } from "@/api/client";
import { Confirm, Opener } from "@/parts/actions";
import { visible } from "@/parts/format";
import { t } from "@/texts";

interface Owner {
  kind: "projects" | "users";
  name: string;
}

/** Delete a project or user that nothing names. */
export const deleteOwner = ({ kind, name }: Owner): Promise<unknown> =>
  kind === "projects"
    ? unwrap(api.DELETE("/v1/projects/{name}", { params: { path: { name } } }))
    : unwrap(api.DELETE("/v1/users/{name}", { params: { path: { name } } }));

/** Deletes a project or user. The manager refuses to delete what anything names, and says what that is. */
export function Delete(owner: Owner) {
  const navigate = useNavigate();
  const name = visible(owner.name);
  return (
    <Opener
      label={t("deletion.delete")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("deletion.title", { name })}
          consequences={[t(`deletion.${owner.kind}`), t("deletion.refused"), t("deletion.final")]}
          verb={t("deletion.delete")}
          act={async () => {
            await deleteOwner(owner);
            await navigate({ to: `/${owner.kind}`, search: (before) => before });
          }}
          done={t("deletion.deleted", { name })}
          close={close}
        />
      )}
    />
  );
}
