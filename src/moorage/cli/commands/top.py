"""``moorage top``: current use of processors, memory, GPUs and network, by session, agent or
device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live

from moorage.cli.app import app
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.output import format_age, make_table, print_table
from moorage.common.model.slots import WHOLE_DEVICE, format_amount

if TYPE_CHECKING:
    from rich.text import Text

    from moorage.common.views.resource_usage import AgentStats, SessionUsage, UsageView
    from moorage.sdk import Client


class Sort(StrEnum):
    CPU = "cpu"
    MEMORY = "memory"
    RX = "rx"
    TX = "tx"
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    CREATED_AT = "created_at"


SESSION_COLUMNS = ("NAME", "CPU", "%", "MEM", "%", "GPU", "GPU MEM", "RX/s", "TX/s", "AGENT", "AGE")
SESSION_WIDE = ("TYPE", "STATUS", "GROUP", "USER", "MEASURED")
AGENT_COLUMNS = ("AGENT", "CPU", "%", "MEM", "%", "GPU", "GPU MEM", "DEVICES", "MEASURED")
DEVICE_COLUMNS = ("AGENT", "DEVICE", "MODEL", "GPU", "MEM", "%", "TEMP", "POWER")


@command(app)
def top(
    cli: Cli,
    agents: Annotated[bool, typer.Option("--agents", "-A", help="Show agents.")] = False,
    devices: Annotated[bool, typer.Option("--devices", "-D", help="Show devices.")] = False,
    sort: Annotated[
        Sort, typer.Option("--sort", "-s", help="Sort by this column, highest first.")
    ] = Sort.CPU,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="The most lines to show.")
    ] = 40,
    every: Annotated[
        float, duration_option("Time between refreshes.", "--every", min_s=0.5, show_default="3s")
    ] = 3.0,
    once: Annotated[bool, typer.Option("--once", "-1", help="Print once and exit.")] = False,
) -> None:
    """Show the current use of processors, memory, GPUs and network by session. On a terminal,
    refresh until Ctrl-C.

    CPU is in processors and GPU in devices; percentages are of the session's allocation.

    \b
    Examples:
      moorage top
      moorage top --sort gpu_memory
      moorage top --agents
      moorage top --devices --once
      moorage top -o json | jq '.sessions[] | {name, cpu: .latest.cpu}'
    """

    async def fetch(client: Client) -> list[Any]:
        if agents or devices:
            return by_usage(await client.agents.top(), sort)[:limit]
        return list(await client.sessions.top(sort=sort, limit=limit))

    def rows(found: Sequence[Any], now: datetime) -> tuple[Sequence[str], list[list[str]]]:
        if devices:
            return DEVICE_COLUMNS, [row for view in found for row in device_rows(view)][:limit]
        if agents:
            return AGENT_COLUMNS, [agent_row(view, now) for view in found]
        columns = SESSION_COLUMNS + (SESSION_WIDE if cli.wide else ())
        return columns, [session_row(view, now, wide=cli.wide) for view in found]

    if not once and cli.output in (Output.TABLE, Output.WIDE) and cli.out.is_terminal:
        cli.run(lambda client: _watch(cli, every, lambda: fetch(client), rows))
        return

    found = cli.run(fetch)
    if cli.json:
        cli.print_json({"agents" if agents or devices else "sessions": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.id if agents or devices else view.name)
    elif not found:
        cli.note("no running session has been measured yet; `moorage ps` lists sessions")
    else:
        print_table(cli.out, *rows(found, cli.clock.now()))


async def _watch(
    cli: Cli,
    every_s: float,
    fetch: Callable[[], Any],
    rows: Callable[[Sequence[Any], datetime], tuple[Sequence[str], list[list[str]]]],
) -> None:
    async def table() -> Text:
        return make_table(*rows(await fetch(), cli.clock.now()), cli.out.width)

    with Live(await table(), console=cli.out, screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(every_s)
            live.update(await table(), refresh=True)


def by_usage(found: Sequence[AgentStats], sort: Sort) -> list[AgentStats]:
    """Rows sorted by use, highest first. Agents have no network figures, so ``rx`` and ``tx`` sort
    them by id."""

    def amount(view: AgentStats) -> int:
        match sort:
            case Sort.CPU:
                return view.cpu or 0
            case Sort.MEMORY:
                return view.memory or 0
            case Sort.GPU:
                return sum(d.gpu or 0 for d in view.devices)
            case Sort.GPU_MEMORY:
                return sum(d.memory or 0 for d in view.devices)
            case _:
                return 0

    return sorted(found, key=lambda view: (-amount(view), view.id))


def session_row(view: SessionUsage, now: datetime, *, wide: bool) -> list[str]:
    latest = view.latest
    row = [view.name, _units(latest.cpu), _percent(latest.cpu, view.slots.get("cpu"))]
    row += [_bytes(latest.memory), _percent(latest.memory, view.slots.get("mem"))]
    row += [_units(latest.gpu), _bytes(latest.gpu_memory), _bytes(latest.rx), _bytes(latest.tx)]
    row += [",".join(view.agents), format_age(now, view.created_at)]

    if wide:
        row += [
            view.type,
            view.status,
            view.resource_group,
            view.user,
            f"{format_age(now, latest.at)} ago",
        ]

    return row


def agent_row(view: AgentStats, now: datetime) -> list[str]:
    busy = [d.gpu for d in view.devices if d.gpu is not None]
    memory = [d.memory for d in view.devices if d.memory is not None]
    row = [view.id, _units(view.cpu), _percent(view.cpu, view.offered_cpu)]
    row += [_bytes(view.memory), _percent(view.memory, view.offered_memory)]
    row += [_units(sum(busy) if busy else None), _bytes(sum(memory) if memory else None)]
    return [*row, str(len(view.devices)), f"{format_age(now, view.at)} ago" if view.at else "never"]


def device_rows(view: AgentStats) -> list[list[str]]:
    return [
        [
            view.id,
            d.device_id,
            d.model,
            "" if d.gpu is None else f"{d.gpu * 100 // WHOLE_DEVICE}%",
            _bytes(d.memory),
            _percent(d.memory, d.memory_bytes),
            "" if d.temperature is None else f"{d.temperature} °C",
            "" if d.power is None else f"{d.power / 1000:.0f} W",
        ]
        for d in view.devices
    ]


def usage_line(latest: UsageView) -> str:
    """The current use as one line for ``describe``."""
    parts = [f"cpu {_units(latest.cpu)}", f"mem {_bytes(latest.memory)}"]
    if latest.gpu is not None:
        parts.append(f"gpu {_units(latest.gpu)}")
    if latest.gpu_memory is not None:
        parts.append(f"gpu mem {_bytes(latest.gpu_memory)}")
    if latest.rx is not None:
        parts.append(f"network {_bytes(latest.rx)}/s in, {_bytes(latest.tx)}/s out")
    return ", ".join(parts)


def _units(amount: int | None) -> str:
    return "" if amount is None else f"{amount / 1000:.2f}"


def _bytes(amount: int | None) -> str:
    return "" if amount is None else format_amount("mem", amount)


def _percent(used: int | None, allocated: int | None) -> str:
    return "" if used is None or not allocated else f"{100 * used / allocated:.0f}"
