"""Prober: tries whether this proxy reaches the agents at their addresses.

It connects to addresses and ports of its route table, where requests go as well. The address of an
agent that dials out is tried only if that is where the agent's own connection comes from: nobody
can have others tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.dialout.probe import MAX_GREETING, greeting
from moorage.common.model.addresses import is_dial_out_host
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout.reach import Attempt, Probe, ReachBook

LOOK_S = 1.0
_ANSWER_S = 3.0
# Ports of one address that are tried in turn.
_PORTS = 4


class ReachProber:
    """``loop`` does the work. ``dialed``: the probes that agents allow whose connections this proxy
    has, by host. ``tell`` gets the hosts that it would reach the other way."""

    def __init__(
        self,
        table: Callable[[], IndexedTable | None],
        dialed: Callable[[], Mapping[str, Probe]],
        tell: Callable[[tuple[str, ...]], None],
        clock: Clock,
    ) -> None:
        self._table = table
        self._dialed = dialed
        self._tell = tell
        self._clock = clock
        self._book = ReachBook()
        self._addresses = dict[str, Probe]()
        self._version: object = None
        self.loop = Loop("proxy.reach", self._tick, interval_s=LOOK_S, clock=clock)

    def suspect(self, host: str) -> None:
        """A request could not connect there."""
        self._book.suspect(host, self._clock.monotonic())

    async def _tick(self) -> None:
        table = self._table()
        if table is not None and table.version is not self._version:
            self._addresses = addresses(table)
            self._version = table.version
        self._book.follow({**self._addresses, **self._dialed()})
        due = self._book.due(self._clock.monotonic())
        await asyncio.gather(*(self._try(attempt) for attempt in due))
        self._tell(self._book.other_way)

    async def _try(self, attempt: Attempt) -> None:
        answers = await _answers(attempt.probe, attempt.port)
        self._book.record(attempt, self._clock.monotonic(), answers=answers)


async def _answers(probe: Probe, port: int) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(probe.host, port)
            try:
                return not probe.agent_id or await reader.read(MAX_GREETING) == greeting(
                    probe.agent_id
                )
            finally:
                writer.transport.abort()
    except ConnectionRefusedError:
        return probe.may_refuse
    except (OSError, TimeoutError):
        return False


def addresses(table: IndexedTable) -> dict[str, Probe]:
    """Of the kernels that run, but no outside providers. Where models are served, these ports
    answer; nothing may listen at those of apps."""
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
        host: Probe(host, tuple(sorted(ports)[:_PORTS]), may_refuse=host in apps)
        for host, ports in (serving | apps).items()
        if host and not is_dial_out_host(host)
    }
