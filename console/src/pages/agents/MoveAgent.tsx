import { Select, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type Agent, api, unwrap } from "@/api/client";
import { groupsQuery } from "@/api/queries";
import { FormDialog } from "@/parts/FormDialog";
import { t } from "@/texts";

/** Moves an agent to another resource group. */
export function MoveAgent({ agent, close }: { agent: Agent; close: () => void }) {
  const groups = useQuery(groupsQuery);
  const [group, setGroup] = useState(agent.resource_group);
  const save = () =>
    unwrap(
      api.PUT("/v1/agents/{id}/group", {
        params: { path: { id: agent.id } },
        body: { resource_group: group },
      }),
    );
  return (
    <FormDialog
      title={t("agent.moveTitle", { id: agent.id })}
      verb={t("agent.moveVerb")}
      ready={group !== agent.resource_group}
      save={save}
      done={t("agent.moved", { id: agent.id, group })}
      close={close}
    >
      <Text size="sm">{t("agent.moveText", { count: agent.kernels })}</Text>
      <Select
        label={t("field.group")}
        allowDeselect={false}
        data={groups.data?.map((one) => one.name) ?? [agent.resource_group]}
        value={group}
        onChange={(value) => setGroup(value ?? agent.resource_group)}
      />
    </FormDialog>
  );
}
