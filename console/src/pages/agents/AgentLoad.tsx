import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Agent, Schemas } from "@/api/client";
import { agentLoadQuery, type LoadRange } from "@/api/queries";
import { Chart } from "@/charts/Chart";
import { LoadSection, spanOf, stepOf } from "@/charts/LoadSection";
import { type Column, hasValues, LINES, onOneAxis } from "@/charts/series";
import { units } from "@/charts/units";
import { t } from "@/texts";

type Load = Schemas["AgentLoad"];
type DeviceLoad = Schemas["DeviceLoad"];
type Values = (number | null)[];

/** Utilization, memory, temperature and power of each device over time, then the node itself. */
export default function AgentLoad({ agent }: { agent: Agent }) {
  const [range, setRange] = useState<LoadRange>("1h");
  const load = useQuery(agentLoadQuery(agent.id, range));
  return (
    <LoadSection
      range={range}
      onRange={setRange}
      load={load}
      charts={(load) => <Charts load={load} agent={agent} />}
    />
  );
}

function Charts({ load, agent }: { load: Load; agent: Agent }) {
  const { offers } = agent;
  const charts = useMemo(() => seriesOf(load, offers), [load, offers]);
  const span = useMemo(() => spanOf(load), [load]);
  const more = (load.devices ?? []).length - LINES;
  return (
    <>
      {charts.map(({ key, series, unit }) =>
        hasValues(series.lines) ? (
          <Chart key={key} title={t(`load.${key}`)} {...series} span={span} unit={unit} />
        ) : null,
      )}
      {more > 0 ? <p className="dim">{t("load.more", { count: more })}</p> : null}
    </>
  );
}

function seriesOf(load: Load, offers: Agent["offers"]) {
  const { at = [], devices = [] } = load;
  const step = stepOf(load);
  const names = deviceNames(devices, offers);
  const perDevice = (pick: (device: DeviceLoad) => Values | undefined, scale: number) =>
    onOneAxis(
      devices.map(
        (device, index): Column => ({
          name: names[index] ?? device.device_id,
          at: device.at ?? [],
          values: scaled(pick(device) ?? [], scale),
        }),
      ),
      step,
    );
  const ofNode = (name: string, values: Values, scale: number) =>
    onOneAxis([{ name, at, values: scaled(values, scale) }], step);
  return [
    { key: "gpu", series: perDevice((device) => device.gpu, 10), unit: units.percent },
    { key: "gpuMemory", series: perDevice((device) => device.memory, 1), unit: units.bytes },
    { key: "temperature", series: perDevice((device) => device.temperature, 1), unit: units.celsius },
    { key: "power", series: perDevice((device) => device.power, 1000), unit: units.watts },
    { key: "cpu", series: ofNode(t("load.cpuLine"), load.cpu ?? [], 1000), unit: units.plain },
    { key: "memory", series: ofNode(t("load.memoryLine"), load.memory ?? [], 1), unit: units.bytes },
  ] as const;
}

const scaled = (values: Values, scale: number): Values =>
  values.map((value) => (value === null ? null : value / scale));

/** "0: H100" by the place in the offers, because ids are long and alike; the id of a device that is gone. */
function deviceNames(devices: DeviceLoad[], offers: Agent["offers"]): string[] {
  const offered = offers.filter((offer) => offer.device_id !== "").map((offer) => offer.device_id);
  return devices.map(({ device_id }) => {
    const place = offered.indexOf(device_id);
    return place < 0 ? device_id : t("load.device", { number: place });
  });
}
