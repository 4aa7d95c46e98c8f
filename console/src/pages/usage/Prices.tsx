import { NumberInput, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { usePlatformRole } from "@/api/auth";
import { api, type Price, type Schemas, unwrap } from "@/api/client";
import { groupsQuery, pricesQuery } from "@/api/queries";
import { Opener } from "@/parts/actions";
import { DataTable } from "@/parts/DataTable";
import { FormDialog } from "@/parts/FormDialog";
import { dateTime, visible } from "@/parts/format";
import { Page } from "@/parts/Page";
import { Empty, Loaded } from "@/parts/States";
import { t } from "@/texts";
import { priceText } from "./units";

type Unit = Schemas["PriceSpec"]["unit"];
const UNITS: Unit[] = [
  "gpu",
  "cpu",
  "memory",
  "node",
  "requests",
  "tokens_in",
  "tokens_out",
  "tokens_cached",
];
const MILLIONTHS = 1_000_000;
const HOUR_MS = 3_600_000;

/** What an hour, a request or a token costs, from which hour on. */
export function Prices() {
  const prices = useQuery(pricesQuery);
  const platform = usePlatformRole();
  return (
    <Page
      title={t("nav.prices")}
      lead={t("prices.lead")}
      actions={
        platform === "admin" ? (
          <Opener label={t("prices.set")} variant="filled" dialog={(close) => <PriceForm close={close} />} />
        ) : null
      }
    >
      <Loaded query={prices}>
        {({ items, warnings, currency }) => (
          <>
            {warnings?.map((warning) => (
              <div className="banner" role="status" key={warning}>
                {warning}
              </div>
            ))}
            <DataTable
              label={t("nav.prices")}
              rows={items}
              id={(price) => [price.unit, price.device, price.resource_group, price.since].join(" ")}
              empty={<Empty title={t("prices.empty")} command="moorage prices set gpu 2.5" />}
              columns={[
                { key: "unit", header: t("prices.unit"), cell: (price) => t(`prices.units.${price.unit}`) },
                {
                  key: "device",
                  header: t("prices.device"),
                  cell: (price) => (price.device ? visible(price.device) : t("prices.any")),
                },
                {
                  key: "group",
                  header: t("field.group"),
                  cell: (price) => (price.resource_group ? visible(price.resource_group) : t("prices.any")),
                },
                {
                  key: "price",
                  header: t("prices.price"),
                  right: true,
                  cell: (price) => priceText(price.price / MILLIONTHS, currency ?? ""),
                },
                { key: "since", header: t("prices.since"), cell: (price) => dateTime(price.since) },
                {
                  key: "by",
                  header: t("prices.by"),
                  wide: true,
                  cell: (price: Price) => visible(price.changed_by),
                },
              ]}
            />
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The full hour in which a local time lies, as text for the manager; null for the current hour. */
function hourOf(local: string): string | null {
  const at = Date.parse(local);
  return Number.isNaN(at) ? null : new Date(Math.ceil(at / HOUR_MS) * HOUR_MS).toISOString();
}

function PriceForm({ close }: { close: () => void }) {
  const groups = useQuery(groupsQuery);
  const [unit, setUnit] = useState<Unit>("gpu");
  const [device, setDevice] = useState("");
  const [group, setGroup] = useState<string | null>(null);
  const [price, setPrice] = useState<string | number>("");
  const [since, setSince] = useState("");
  const save = () =>
    unwrap(
      api.PUT("/v1/prices", {
        body: {
          unit,
          device: device.trim(),
          resource_group: group ?? "",
          since: hourOf(since),
          price: Math.round(Number(price) * MILLIONTHS),
        },
      }),
    );
  return (
    <FormDialog
      title={t("prices.set")}
      verb={t("action.save")}
      ready={price !== "" && Number(price) >= 0}
      save={save}
      done={t("prices.saved")}
      close={close}
    >
      <Select
        label={t("prices.unit")}
        allowDeselect={false}
        data={UNITS.map((value) => ({ value, label: t(`prices.units.${value}`) }))}
        value={unit}
        onChange={(value) => setUnit(value as Unit)}
      />
      <NumberInput
        label={t("prices.price")}
        description={t("prices.priceHelp")}
        required
        data-autofocus
        min={0}
        decimalScale={6}
        value={price}
        onChange={setPrice}
      />
      {unit === "gpu" ? (
        <TextInput
          label={t("prices.device")}
          description={t("prices.deviceHelp")}
          value={device}
          onChange={(event) => setDevice(event.currentTarget.value)}
        />
      ) : null}
      <Select
        label={t("field.group")}
        placeholder={t("prices.any")}
        clearable
        data={groups.data?.map((one) => one.name) ?? []}
        value={group}
        onChange={setGroup}
      />
      <TextInput
        label={t("prices.since")}
        description={t("prices.sinceHelp")}
        type="datetime-local"
        step={3600}
        value={since}
        onChange={(event) => setSince(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
