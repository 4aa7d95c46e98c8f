"""Reach of the agents of this manager: the hosts at which proxies find their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import FullReportRequest
from moorage.common.model.ids import AgentId
from moorage.manager.rpc.agent_addresses import AgentAddresses, source_of
from moorage.manager.rpc.agent_stream import AgentStream, StreamRefused
from moorage.manager.rpc.reach import Asked, Reach, next_reach
from moorage.manager.store import Store
from moorage.manager.store.managers import ManagerBeat

log = structlog.get_logger("moorage.link")

_NAMED = 5  # proxies in a reason
_UNTRIED = Reach(dials_out=False)


class ReachControl:
    """``proxies``: where those take connections that agents dial out to find them, of all
    managers."""

    def __init__(self, addresses: AgentAddresses, store: Store, clock: Clock) -> None:
        self._addresses = addresses
        self._store = store
        self._clock = clock
        self.proxies: tuple[str, ...] = ()
        # Of agents that were moved, by their own address and id.
        self._reach: dict[tuple[str, AgentId], Reach] = {}

    async def bind(self, stream: AgentStream, peer: str) -> None:
        """Find the host at which an agent is reached that has connected. Raises ``StreamRefused``
        for one that may not report its address."""
        reach = stream.first.info.reach
        host = None
        why = ""
        if reach != "dial-out":
            host = await self._addresses.bind(stream.agent_id, stream.address, peer)

        stream.direct_host = host if reach == "auto" else None
        if host is not None and reach == "auto" and self.proxies:
            # If it dialed out before this connection, its address is tried again by proxies, not by
            # requests.
            stored, stored_why = await self._store.managers.address_of_agent(stream.agent_id)
            if stored == stream.dial_out_host:
                host = stream.dial_out_host
                why = stored_why

        if host is None and reach == "dial-out":
            host = stream.dial_out_host
            why = "agent.reach is dial-out"

        if host is None and reach == "auto" and self.proxies:
            host = stream.dial_out_host
            why = (
                f"its link comes from {source_of(peer)}, not from agent.address = "
                f"{stream.address[:80]}"
            )

        if host is None:
            raise StreamRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"agent.address = {stream.address[:80]!r} is not where this connection comes "
                "from, which is "
                f"{source_of(peer)}: set agent.address to that, or allow it at the manager, with "
                f'manager.agent_addresses = ["{stream.agent_id}={stream.address[:80]}"]',
            )

        stream.bind(host, why)

    def look(self, streams: Collection[AgentStream], managers: Sequence[ManagerBeat]) -> None:
        """Move the agents that proxies want to reach the other way. ``managers``: all of them."""
        asked = Counter(chain.from_iterable(manager.other_way for manager in managers))
        waiting = {agent_id for (_, agent_id), reach in self._reach.items() if reach.waits}
        waiting &= {stream.agent_id for stream in streams} if waiting else waiting
        if not asked and not waiting:
            return

        taking = len({address for manager in managers for address in manager.dialout})
        all_take = sum(manager.proxy_links or 0 for manager in managers) <= taking
        for stream in streams:
            if stream.direct_host is None or not (asked[stream.host] or stream.agent_id in waiting):
                continue

            askers = sorted(
                {p for m in managers for p, hosts in m.asks.items() if stream.host in hosts}
            )
            self._move(stream, Asked(asked[stream.host], taking, all_take), askers)

    def _move(self, stream: AgentStream, asked: Asked, askers: Sequence[str]) -> None:
        assert stream.direct_host is not None
        name = stream.direct_host, stream.agent_id
        before = Reach(stream.dials_out, *_history(self._reach.get(name, _UNTRIED)))
        after = self._reach[name] = next_reach(before, asked, self._clock.monotonic())
        if after.dials_out == before.dials_out:
            return

        why = "its address answers again"
        if after.dials_out:
            # A proxy of a manager of the release before has no name here.
            why = f"{stream.direct_host} does not answer {_names(askers) or 'a proxy'}"
            stream.bind(stream.dial_out_host, why)
        else:
            stream.bind(stream.direct_host)

        stream.send_request(FullReportRequest())
        log.warning(
            "proxies reach an agent otherwise", agent=stream.agent_id, host=stream.host, why=why
        )


def _names(proxies: Sequence[str]) -> str:
    more = f" and {len(proxies) - _NAMED} more" if len(proxies) > _NAMED else ""
    return ", ".join(proxies[:_NAMED]) + more


def _history(reach: Reach) -> tuple[float | None, tuple[float, ...]]:
    return reach.answers_since, reach.changes
