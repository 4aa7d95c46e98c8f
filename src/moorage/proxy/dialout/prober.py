"""Prober: tests whether this proxy can reach the agents at their addresses.

It connects to the addresses and ports in the route table, which requests also use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.addresses import is_dial_out_host
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout.reach import ProbeAttempt, ReachBook, ReachProbe

LOOK_S = 1.0
_ANSWER_S = 3.0
# The most ports of one address that are tried in turn.
_PORTS = 4


class ReachProber:
    """The prober. ``loop`` does the work. ``tell`` is called with the hosts that do not answer."""

    def __init__(
        self,
        table: Callable[[], IndexedTable | None],
        tell: Callable[[tuple[str, ...]], None],
        clock: Clock,
    ) -> None:
        self._table = table
        self._tell = tell
        self._clock = clock
        self._book = ReachBook()
        self._version: object = None
        self.loop = Loop("proxy.reach", self._tick, interval_s=LOOK_S, clock=clock)

    def suspect(self, host: str) -> None:
        """Suspect a host that a request could not connect to."""
        self._book.suspect(host, self._clock.monotonic())

    async def _tick(self) -> None:
        table = self._table()
        if table is not None and table.version is not self._version:
            self._version = table.version
            self._book.follow(addresses(table))
        due = self._book.due(self._clock.monotonic())
        await asyncio.gather(*(self._try(attempt) for attempt in due))
        self._tell(self._book.unreached)

    async def _try(self, attempt: ProbeAttempt) -> None:
        answers = await _answers(attempt.probe, attempt.port)
        self._book.record(attempt, self._clock.monotonic(), answers=answers)


async def _answers(probe: ReachProbe, port: int) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_S):
            _, writer = await asyncio.open_connection(probe.host, port)
        writer.transport.abort()
        return True
    except ConnectionRefusedError:
        return probe.may_refuse
    except (OSError, TimeoutError):
        return False


def addresses(table: IndexedTable) -> dict[str, ReachProbe]:
    """The addresses of running kernels, without outside providers. Models' ports must answer; apps'
    ports may have no listener."""
    serving = dict[str, set[int]]()
    apps = dict[str, set[int]]()

    for route in table.models.values():
        for target in route.targets:
            if not (target.tls or target.draining):
                serving.setdefault(target.host, set()).add(target.port)

    for app in table.apps.values():
        if app.host not in serving:
            apps.setdefault(app.host, set()).add(app.port)

    return {
        host: ReachProbe(host, tuple(sorted(ports)[:_PORTS]), may_refuse=host in apps)
        for host, ports in (serving | apps).items()
        if host and not is_dial_out_host(host)
    }
