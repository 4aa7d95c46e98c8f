import { Button, Group, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { ApiProblem } from "@/api/client";
import { t } from "@/texts";
import { visible } from "./format";
import { Problem } from "./States";
import { Age } from "./Time";

type Values = Record<string, unknown>;

/** The current state: its values and version, and who changed it and when. */
export interface Latest<V> {
  value: V;
  etag: string;
  by?: string | undefined;
  at?: string | null | undefined;
}

/** Another administrator was faster: shows what both changed and lets the user choose. Nothing is overwritten
 *  without asking. Any other failure is shown unchanged. */
export function Conflict<V extends object, L extends Latest<V> = Latest<V>>({
  error,
  base,
  mine,
  latest,
  reload,
  overwrite,
}: {
  error: unknown;
  base: V;
  mine: V;
  latest: () => Promise<L>;
  reload: (latest: L) => void;
  overwrite: (latest: L) => void;
}) {
  const conflict = error instanceof ApiProblem && error.status === 412;
  // Each refusal refetches, because there may have been a third change.
  const found = useQuery({
    queryKey: ["conflict", conflict ? error.requestId : ""],
    queryFn: latest,
    enabled: conflict,
    gcTime: 0,
  });
  const box = useRef<HTMLDivElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the text makes the box grow
  useEffect(() => {
    box.current?.scrollIntoView({ block: "nearest" });
  }, [found.data]);
  if (!conflict) {
    return <Problem error={error} />;
  }
  if (found.error) {
    return <Problem error={found.error} retry={() => void found.refetch()} />;
  }
  const theirs = found.data;
  return (
    <Stack gap="xs" role="alert" className="banner" ref={box}>
      <Text size="sm">
        {theirs?.by ? t("conflict.by", { user: visible(theirs.by) }) : t("conflict.text")}{" "}
        {theirs?.at ? <Age at={theirs.at} /> : null}
      </Text>
      {theirs ? (
        <>
          <Differences base={base as Values} theirs={theirs.value as Values} mine={mine as Values} />
          <Group gap="xs">
            <Button size="xs" variant="default" onClick={() => reload(theirs)}>
              {t("conflict.reload")}
            </Button>
            <Button size="xs" color="red.8" onClick={() => overwrite(theirs)}>
              {t("conflict.overwrite")}
            </Button>
          </Group>
        </>
      ) : null}
    </Stack>
  );
}

const same = (a: unknown, b: unknown) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
const shown = (value: unknown) =>
  value === null || value === undefined || value === ""
    ? "–"
    : visible(typeof value === "string" ? value : JSON.stringify(value));

function Differences({ base, theirs, mine }: { base: Values; theirs: Values; mine: Values }) {
  const fields = [...new Set([...Object.keys(theirs), ...Object.keys(mine)])].filter(
    (field) => !same(base[field], theirs[field]) || !same(base[field], mine[field]),
  );
  return (
    <Table aria-label={t("conflict.differences")} className="wrap">
      <Table.Thead>
        <Table.Tr>
          {(["field", "before", "theirs", "mine"] as const).map((column) => (
            <Table.Th key={column}>{t(`conflict.${column}`)}</Table.Th>
          ))}
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {fields.map((field) => (
          <Table.Tr key={field}>
            <Table.Td>{field}</Table.Td>
            {[base, theirs, mine].map((values, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the three columns never move
              <Table.Td key={index}>{shown(values[field])}</Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
