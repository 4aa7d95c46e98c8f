import { Button, Group, Text } from "@mantine/core";
import { Suspense, useState } from "react";
import { t } from "@/texts";
import { lazy } from "./lazy";

const BulkDialog = lazy(() => import("./BulkDialog"));

/** An action on each of the selected rows. */
export interface BulkAction<T> {
  key: string;
  verb: string;
  danger?: boolean;
  /** Whether the action means anything for this row; others are left out. */
  applies: (row: T) => boolean;
  /** What happens, in the confirmation. */
  consequence: string;
  act: (row: T) => Promise<unknown>;
}

/** A button for each action that applies to at least one of the selected rows, with their number. */
export function BulkBar<T>({
  selected,
  actions,
  nameOf,
  clear,
}: {
  selected: T[];
  actions: BulkAction<T>[];
  nameOf: (row: T) => string;
  clear: () => void;
}) {
  // The rows of an open dialog stay as they were when it was opened, whatever happens in the list.
  const [open, setOpen] = useState<{ action: BulkAction<T>; rows: T[] } | null>(null);
  return (
    <Group gap="xs" className="bulk" role="toolbar" aria-label={t("bulk.label")}>
      <Text size="sm">{t("bulk.selected", { count: selected.length })}</Text>
      {actions.map((action) => {
        const rows = selected.filter(action.applies);
        return rows.length === 0 ? null : (
          <Button
            key={action.key}
            size="xs"
            variant="default"
            className={action.danger ? "danger" : undefined}
            onClick={() => setOpen({ action, rows })}
          >
            {t("bulk.action", { verb: action.verb, count: rows.length })}
          </Button>
        );
      })}
      <Button size="xs" variant="subtle" onClick={clear}>
        {t("bulk.clear")}
      </Button>
      {open ? (
        <Suspense>
          <BulkDialog
            action={open.action as BulkAction<unknown>}
            rows={open.rows}
            nameOf={nameOf as (row: unknown) => string}
            close={(done) => {
              setOpen(null);
              if (done) {
                clear();
              }
            }}
          />
        </Suspense>
      ) : null}
    </Group>
  );
}
