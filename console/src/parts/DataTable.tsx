import { Button, Table, Text } from "@mantine/core";
import { memo, type ReactNode, useState } from "react";
import { t } from "@/texts";

export interface Column<T> {
  key: string;
  header: string;
  cell: (row: T) => ReactNode;
  right?: boolean;
  /** Left out if there is little room. */
  wide?: boolean;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  empty?: ReactNode;
  more?: { load: () => void; loading: boolean } | undefined;
}

const SHOWN = 40;

/** A table; on a narrow screen each row becomes a card whose fields have the headers as labels. */
export function DataTable<T>({ label, columns, rows, id, empty, more }: Props<T>) {
  const [limit, setLimit] = useState(SHOWN);
  if (rows.length === 0 && empty) {
    return <>{empty}</>;
  }
  return (
    <>
      <Table.ScrollContainer minWidth={0} type="native" className="table-box">
        <Table className="data" highlightOnHover aria-label={label} verticalSpacing={7}>
          <Table.Thead>
            <Table.Tr>
              {columns.map((column) => (
                <Table.Th key={column.key} scope="col" className={classOf(column)}>
                  {column.header}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.slice(0, limit).map((row) => (
              <Row key={id(row)} row={row} columns={columns as Column<unknown>[]} />
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      <div className="table-foot">
        <Text size="xs" className="dim">
          {rows.length > limit
            ? t("table.some", { shown: limit, count: rows.length })
            : t("table.all", { count: rows.length })}
          {more ? t("table.andMore") : ""}
        </Text>
        {rows.length > limit ? (
          <Button size="xs" variant="default" onClick={() => setLimit(limit + 5 * SHOWN)}>
            {t("table.show")}
          </Button>
        ) : more ? (
          <Button size="xs" variant="default" loading={more.loading} onClick={more.load}>
            {t("table.load")}
          </Button>
        ) : null}
      </div>
    </>
  );
}

const classOf = (column: Column<never>) =>
  [column.right ? "right" : "", column.wide ? "wide-only" : ""].join(" ").trim() || undefined;

const Row = memo(function Row({ row, columns }: { row: unknown; columns: Column<unknown>[] }) {
  return (
    <Table.Tr>
      {columns.map((column) => (
        <Table.Td key={column.key} className={classOf(column as Column<never>)} data-label={column.header}>
          {column.cell(row)}
        </Table.Td>
      ))}
    </Table.Tr>
  );
});
