import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { type LoadRange, loadRanges } from "@/api/queries";
import { Section } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { RangeControl } from "./Range";

/** The time that a response covers, and the length of its steps. */
interface Window {
  since: string;
  until: string;
  step: "minute" | "5-minutes" | "hour" | "day";
  at?: number[];
}

const STEPS_S = { minute: 60, "5-minutes": 300, hour: 3600, day: 86_400 };

export const stepOf = (window: Window) => STEPS_S[window.step];
export const spanOf = (window: Window) =>
  [Date.parse(window.since) / 1000, Date.parse(window.until) / 1000] as const;

/** Charts of load over time, with the choice of the time. */
export function LoadSection<W extends Window>({
  range,
  onRange,
  load,
  charts,
}: {
  range: LoadRange;
  onRange: (range: LoadRange) => void;
  load: UseQueryResult<W>;
  charts: (window: W) => ReactNode;
}) {
  return (
    <Section
      title={t("load.title")}
      actions={<RangeControl ranges={loadRanges} value={range} onChange={onRange} />}
    >
      <Loaded query={load} height={480}>
        {(window) =>
          (window.at ?? []).length === 0 ? (
            <Empty title={t("history.none")}>{t("load.noneText")}</Empty>
          ) : (
            <div className="columns">{charts(window)}</div>
          )
        }
      </Loaded>
    </Section>
  );
}
