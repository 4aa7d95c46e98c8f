import { Button, Group, Select, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { MANAGER } from "@/api/place";
import { groupsQuery } from "@/api/queries";
import { useAction } from "@/parts/actions";
import { Dialog } from "@/parts/FormDialog";
import { Command, Problem } from "@/parts/States";
import { t } from "@/texts";

/** Creates a join token, and shows the command with which a node joins. */
export function AddAgent({ close }: { close: () => void }) {
  const groups = useQuery(groupsQuery);
  const [group, setGroup] = useState("default");
  const create = useAction(() =>
    unwrap(api.POST("/v1/join-tokens", { body: { kind: "agent", resource_group: group, uses: 1 } })),
  );
  const made = create.data;
  return (
    <Dialog title={t("agents.add")} size="lg" close={close}>
      <Stack gap="md">
        <Text size="sm">{t("agents.addText")}</Text>
        <Select
          label={t("field.group")}
          allowDeselect={false}
          data={groups.data?.map((one) => one.name) ?? ["default"]}
          value={group}
          onChange={(value) => setGroup(value ?? "default")}
        />
        {create.error ? <Problem error={create.error} /> : null}
        {made ? (
          <>
            <Text size="sm">{t("agents.addCommand")}</Text>
            <Command line={`echo ${made.secret} | moorage agent join ${MANAGER}\nmoorage agent`} />
          </>
        ) : (
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
              {t("action.cancel")}
            </Button>
            <Button loading={create.isPending} onClick={() => create.mutate()}>
              {t("agents.makeToken")}
            </Button>
          </Group>
        )}
      </Stack>
    </Dialog>
  );
}
