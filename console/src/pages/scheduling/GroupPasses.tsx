import { TextInput } from "@mantine/core";
import { useDeferredValue, useState } from "react";
import { serverNow } from "@/api/connection";
import { RangeControl } from "@/charts/Range";
import { Section } from "@/parts/Page";
import { t } from "@/texts";
import { COLUMNS, OF_SESSION, Passes, usePasses } from "./Passes";

const RANGES_S = { "1h": 3600, "6h": 6 * 3600, "1d": 86_400, "7d": 7 * 86_400 };
type Range = keyof typeof RANGES_S;
const RANGES = Object.keys(RANGES_S) as Range[];

/** The passes of the scheduler in a resource group. */
export default function GroupPasses({ group }: { group: string }) {
  const [range, setRange] = useState<Range>("1h");
  const [typed, setTyped] = useState("");
  const session = useDeferredValue(typed.trim());
  const asked = session ? { group, session } : { group };
  const { query, rows, more } = usePasses(range, asked, () => {
    const now = serverNow();
    return { from: new Date(now - RANGES_S[range] * 1000).toISOString(), to: new Date(now).toISOString() };
  });
  return (
    <Section
      title={t("scheduler.title")}
      actions={<RangeControl ranges={RANGES} value={range} onChange={setRange} />}
    >
      <TextInput
        size="xs"
        mb="md"
        maw={420}
        label={t("scheduler.session")}
        description={t("scheduler.sessionHelp")}
        value={typed}
        maxLength={100}
        onChange={(event) => setTyped(event.currentTarget.value)}
      />
      <Passes query={query} rows={rows} more={more} columns={session ? OF_SESSION : COLUMNS} />
    </Section>
  );
}
