"""Load over time as text: one line of the current load, and rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from moorage.common.model.slots import WHOLE_DEVICE, format_amount

if TYPE_CHECKING:
    from moorage.common.views.load import AgentLoad, EndpointLoad
    from moorage.common.views.resource_usage import AgentStats, DeviceStats

ENDPOINT_COLUMNS = (
    "TIME",
    "REQ/S",
    "ERRORS",
    "FIRST TOKEN",
    "TOK IN/S",
    "TOK OUT/S",
    "RUN",
    "WAIT",
    "HELD",
    "READY",
)
# How old a step that counts as current may be.
CURRENT_S = 180.0
NODE_COLUMNS = ("TIME", "CPU", "MEM", "GPU", "GPU MEM", "TEMP", "POWER")


def current_load(load: EndpointLoad | None) -> str:
    """The newest step of an endpoint with counted requests; "" if there is none."""
    counted = [] if load is None else [n for n, s in enumerate(load.covered_s) if s > 0]
    if load is None or not counted:
        return ""

    at = counted[-1]
    if load.at[at] < load.until.timestamp() - CURRENT_S:
        return ""

    first_token = load.first_token_ms[at]
    parts = [
        f"{_per_second(load, load.requests, at)} requests/s",
        f"{load.errors[at]} errors",
        "" if first_token is None else f"first token {_milliseconds(first_token)}",
        f"{_per_second(load, load.tokens_out, at)} tokens/s" if load.tokens_out[at] else "",
    ]
    return ", ".join(part for part in parts if part)


def current_devices(stats: AgentStats) -> str:
    """The use of all devices of a node: mean utilization, memory, highest temperature, power."""

    def known(name: str) -> list[int]:
        return [value for device in stats.devices if (value := getattr(device, name)) is not None]

    busy, memory, heat, power = (known(name) for name in ("gpu", "memory", "temperature", "power"))
    parts = [
        f"gpu {100 * sum(busy) / len(busy) / WHOLE_DEVICE:.0f}%" if busy else "",
        f"gpu mem {format_amount('mem', sum(memory))}" if memory else "",
        f"{max(heat)} °C" if heat else "",
        f"{sum(power) / 1000:.0f} W" if power else "",
    ]
    return ", ".join(part for part in parts if part)


def climate(stats: DeviceStats | None) -> tuple[str, str]:
    """Temperature and power of a device."""
    if stats is None:
        return "", ""
    return (
        "" if stats.temperature is None else f"{stats.temperature} °C",
        "" if stats.power is None else f"{stats.power / 1000:.0f} W",
    )


def endpoint_rows(load: EndpointLoad) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for n, at in enumerate(load.at):
        first_token = load.first_token_ms[n]
        rows.append(
            (
                _time(at, load.step),
                _per_second(load, load.requests, n),
                str(load.errors[n]),
                "-" if first_token is None else _milliseconds(first_token),
                _per_second(load, load.tokens_in, n),
                _per_second(load, load.tokens_out, n),
                f"{load.running[n]:.1f}",
                f"{load.waiting[n]:.1f}",
                f"{load.held[n]:.1f}",
                f"{load.ready[n]:.3g}/{load.wanted[n]:.3g}",
            )
        )
    return rows


def agent_rows(load: AgentLoad) -> list[tuple[str, ...]]:
    """A row has the mean utilization, the highest temperature, and the sums of the rest."""
    devices: dict[int, list[tuple[float | None, ...]]] = {}
    for device in load.devices:
        columns = device.gpu, device.memory, device.temperature, device.power
        for at, *values in zip(device.at, *columns, strict=True):
            devices.setdefault(at, []).append(tuple(values))

    rows: list[tuple[str, ...]] = []
    for n, at in enumerate(load.at):
        measured = devices.get(at, [])
        busy, memory, heat, power = (_known(value[i] for value in measured) for i in range(4))
        rows.append(
            (
                _time(at, load.step),
                f"{load.cpu[n] / 1000:.2f}",
                format_amount("mem", round(load.memory[n])),
                f"{100 * sum(busy) / len(busy) / WHOLE_DEVICE:.0f}%" if busy else "-",
                format_amount("mem", round(sum(memory))) if memory else "-",
                f"{max(heat):.0f} °C" if heat else "-",
                f"{sum(power) / 1000:.0f} W" if power else "-",
            )
        )
    return rows


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _per_second(load: EndpointLoad, sums: Sequence[int], n: int) -> str:
    """ "-" for a step in which nothing was counted."""
    if load.covered_s[n] <= 0:
        return "-"
    rate = sums[n] / load.covered_s[n]
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def _time(at: int, step: str) -> str:
    return f"{datetime.fromtimestamp(at, UTC):{'%Y-%m-%d' if step == 'day' else '%Y-%m-%d %H:%M'}}"
