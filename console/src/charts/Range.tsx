import { SegmentedControl } from "@mantine/core";
import { t } from "@/texts";

type Range = "1h" | "6h" | "1d" | "7d" | "30d" | "1y";

/** The choice of the time that charts show. */
export function RangeControl<R extends Range>({
  ranges,
  value,
  onChange,
}: {
  ranges: readonly R[];
  value: R;
  onChange: (range: R) => void;
}) {
  return (
    <SegmentedControl
      size="xs"
      transitionDuration={0}
      aria-label={t("history.range")}
      data={ranges.map((range) => ({ value: range, label: t(`history.${range as Range}`) }))}
      value={value}
      onChange={(range) => onChange(range as R)}
    />
  );
}
