import { Group, Text } from "@mantine/core";
import { api, type Group as ResourceGroup, unwrap } from "@/api/client";
import { Confirm, Opener } from "@/parts/actions";
import { Section } from "@/parts/Page";
import { t } from "@/texts";

/** The former names of a group, each of which can be released. The manager refuses one that is in use. */
export function FormerNames({ group }: { group: ResourceGroup }) {
  const aliases = group.aliases ?? [];
  return aliases.length === 0 ? null : (
    <Section title={t("group.aliases")}>
      <Text size="sm" className="dim" mb="sm">
        {t("group.aliasesText")}
      </Text>
      {aliases.map((alias) => (
        <Group key={alias} gap="sm" mb={6} role="group" aria-label={alias}>
          <span className="wrap">{alias}</span>
          <Release alias={alias} name={group.name} />
        </Group>
      ))}
    </Section>
  );
}

function Release({ alias, name }: { alias: string; name: string }) {
  return (
    <Opener
      label={t("group.release")}
      danger
      dialog={(close) => (
        <Confirm
          title={t("group.releaseTitle", { alias })}
          consequences={[
            t("group.releaseText", { alias, name }),
            t("group.releaseFree", { alias }),
            t("group.releaseRefused"),
          ]}
          verb={t("group.release")}
          act={() => unwrap(api.DELETE("/v1/group-aliases/{name}", { params: { path: { name: alias } } }))}
          done={t("group.released", { alias })}
          close={close}
        />
      )}
    />
  );
}
