import { Button, Checkbox, Popover, Stack } from "@mantine/core";
import { t } from "@/texts";
import type { Choice, Choosable } from "./columns";

/** A button that opens the list of columns. */
export default function ColumnChooser({ choice }: { choice: Choice<Choosable> }) {
  const { offered, isChosen, choose } = choice;
  const on = offered.filter((one) => one.on).map((one) => one.key);
  const left = offered.length - on.length;
  return (
    <Popover position="bottom-end" transitionProps={{ duration: 0 }} trapFocus returnFocus shadow="md">
      <Popover.Target>
        <Button size="xs" variant="default" className="column-chooser">
          {left > 0 ? t("table.columnsLess", { count: left }) : t("table.columns")}
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label={t("table.columns")}>
        <Stack gap={8}>
          {offered.map(({ key, header, on: isOn }) => (
            <Checkbox
              key={key}
              size="sm"
              label={header}
              checked={isOn}
              onChange={() => choose(isOn ? on.filter((one) => one !== key) : [...on, key])}
            />
          ))}
          <Button size="xs" variant="subtle" disabled={!isChosen} onClick={() => choose(null)}>
            {t("table.columnsFit")}
          </Button>
        </Stack>
      </Popover.Dropdown>
    </Popover>
  );
}
