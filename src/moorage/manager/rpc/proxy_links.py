"""The manager's end of the proxies' links: receives load, usage and the demand for limits, and
returns acknowledgements and shares."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import inf
from typing import Any

import grpc

from moorage.common.aio.clock import Clock
from moorage.common.link.pb import routes_pb2
from moorage.common.link.proxy_messages import (
    EngineRequests,
    LimitNeed,
    LimitShare,
    LoadReport,
    ProxyReply,
    ProxyReport,
)
from moorage.common.link.route_codec import reply_to_wire, report_from_wire
from moorage.common.model.addresses import split_address
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.peer_addresses import PeerAddresses, source_of
from moorage.manager.rpc.proxy_report_validation import find_problem
from moorage.manager.rpc.refusal_log import RefusalLog
from moorage.manager.serving.limit_shares import StoredShares, share_of
from moorage.manager.store.metering.limit_shares import LimitShareStore
from moorage.manager.store.metering.usage_records import UsageRecordStore

# Seconds for which the number of proxies is considered current.
_PROXIES_S = 2.0
# Maximum number of hosts that a proxy may ask to reach over dialed-out connections.
_UNREACHED = 1000
# A proxy that was asked to switch to another manager but stayed is asked again after this many
# seconds, because it may run an earlier release.
_HAND_OVER_AGAIN_S = 600.0
# Seconds between two replies with loads of engines, which agents report every 10 s.
_ENGINES_S = 5.0
_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


def another_process(name: str, address: str) -> str:
    """Explain why a process may not report under ``name``. ``address``: the address of the process
    that owns the name."""
    source = f", from {address}" if address else ""
    return (
        f"another process reports as proxy {name!r}{source}: if both are meant to run, give this "
        "one a different proxy.id and a state directory that is not a copy; if the links have "
        "TLS, join again under that name"
    )


def dialout_refusal(name: str, host: str, source: str) -> str:
    """Explain why agents are not sent to ``host``. ``source``: the source address of the proxy's
    link."""
    return (
        f"proxy.dialout_address of {name!r} is at {host[:80]!r}, but its link comes from {source}: "
        "agents that only dial out are not sent there; set it to an address of that host, or allow "
        f'it at the manager, with manager.proxy_addresses = ["{name}={host[:80]}"]'
    )


class ReportLink:
    """One report stream.

    ``manager``: the manager to which the proxy should switch, or empty if it stays. ``asked_at``:
    monotonic seconds. ``name`` and ``incarnation``: those of the worker, once it has reported load;
    ``proxy``: the name shared by its workers. ``refused``: the address of the process that owns its
    name, or None if this process does. ``reported_dialout``: the address at which it accepts
    connections from agents, as reported; ``dialout``: the same address if it may report it,
    otherwise ""."""

    def __init__(self) -> None:
        self.asked_at = -inf
        self.engines_at = -inf
        self.engines_since = _BEFORE_ALL
        self.manager = ""
        self.name = ""
        self.incarnation = ""
        self.refused: str | None = None
        self._told: tuple[str, ...] = ()
        self.proxy = ""
        self.reported_dialout = ""
        self.dialout = ""
        self.unreached: tuple[str, ...] = ()

    def take_managers(self, managers: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """The managers, if they have changed, and the manager to switch to, for the next reply."""
        changed = managers if managers != self._told else ()
        self._told = managers
        manager = self.manager
        self.manager = ""
        return changed, manager


async def _no_engines(since: datetime) -> tuple[tuple[EngineRequests, ...], datetime]:
    """The default for ``engines_changed``: no engine reports its load."""
    return (), since


async def _claims_nothing(_: LoadReport, __: str) -> None:
    """The default for ``claim``: every process owns its name."""


class ProxyLinks:
    """The proxies' links.

    ``addresses``: addresses that proxies may report for agents that only dial out. ``record_load``
    receives each load report and must not block; ``proxy_gone`` is called with the name and the
    incarnation in these reports when their link ends. ``claim`` receives the first report of each
    link and its source address; it returns the address of the process that owns the name, or None
    if that is the reporting process. ``engines_changed`` returns the loads of engines that changed
    after a time, and the time for its next call."""

    def __init__(
        self,
        records: UsageRecordStore,
        shares: LimitShareStore,
        clock: Clock,
        addresses: PeerAddresses,
        *,
        record_load: Callable[[LoadReport], None] = lambda _: None,
        proxy_gone: Callable[[str, str], None] = lambda *_: None,
        claim: Callable[[LoadReport, str], Awaitable[str | None]] = _claims_nothing,
        engines_changed: Callable[
            [datetime], Awaitable[tuple[tuple[EngineRequests, ...], datetime]]
        ] = _no_engines,
    ) -> None:
        self._records = records
        self._shares = shares
        self._clock = clock
        self._addresses = addresses
        self._record_load = record_load
        self._proxy_gone = proxy_gone
        self._claim = claim
        self._engines_changed = engines_changed
        self._refusals = RefusalLog("proxy refused")
        self._dialout_refusals = RefusalLog("dial-out address of a proxy refused")
        self._links: dict[str, int] = {}
        self._reports: set[ReportLink] = set()
        self._managers: tuple[str, ...] = ()
        self._proxies = 1
        self._proxies_at = -_PROXIES_S

    async def serve(
        self, requests: AsyncIterator[routes_pb2.ProxyReport], context: Any, caller: LinkCaller
    ) -> None:
        """Reply to every report once, in order, after committing what the reply acknowledges.

        Raises ``StoreUnavailable``."""
        name = ""
        link = ReportLink()
        self._reports.add(link)

        try:
            async for message in requests:
                report = report_from_wire(message)
                if wrong := caller.refusal_to_act_as(report.proxy_id):
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
                if wrong := find_problem(report):
                    self._refusals.refused(context.peer(), wrong)
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, wrong)

                link.unreached = report.unreached[:_UNREACHED]
                await self._take_dialout(link, report, context.peer())
                if not name:
                    name = report.proxy_id
                    link.proxy = name
                    self._links[name] = self._links.get(name, 0) + 1

                if report.load is not None:
                    if not link.name:
                        await self._take_name(link, report.load, context)
                    if link.refused is None:
                        self._record_load(report.load)

                if link.refused is not None:
                    why = another_process(link.name, link.refused)
                    self._refusals.refused(context.peer(), why)
                    await context.abort(grpc.StatusCode.ALREADY_EXISTS, why)

                acks = await self._records.put(report.proxy_id, report.usage)
                shares = await self._divide(report.proxy_id, report.needs)
                proxies = await self._count_proxies()
                engines = await self._take_engines(link)
                managers, manager = link.take_managers(self._managers)
                reply = ProxyReply(
                    acks, shares, proxies, managers, manager=manager, engines=engines
                )
                await context.write(reply_to_wire(reply))
        finally:
            self._reports.discard(link)
            if name:
                self._links[name] -= 1
                if not self._links[name]:
                    del self._links[name]

            if link.name and link.refused is None:
                self._proxy_gone(link.name, link.incarnation)

    async def _take_engines(self, link: ReportLink) -> tuple[EngineRequests, ...]:
        """Loads of engines for the next reply: all at first, then the changed ones."""
        now = self._clock.monotonic()
        if now - link.engines_at < _ENGINES_S:
            return ()

        link.engines_at = now
        loads, link.engines_since = await self._engines_changed(link.engines_since)
        return loads

    async def _take_dialout(self, link: ReportLink, report: ProxyReport, peer: str) -> None:
        """Check the address at which the proxy accepts connections from agents, if it is new."""
        if report.dialout == link.reported_dialout:
            return

        link.reported_dialout = report.dialout
        link.dialout = ""
        if not report.dialout:
            return

        try:
            reported, port = split_address(report.dialout)
        except ValueError as error:
            self._dialout_refusals.refused(peer, f"proxy.dialout_address: {error}")
            return

        host = await self._addresses.bind(report.proxy_id, reported, peer)
        if host is None:
            why = dialout_refusal(report.proxy_id, reported, str(source_of(peer)))
            self._dialout_refusals.refused(peer, why)
            return

        self._dialout_refusals.accepted(peer)
        link.dialout = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _take_name(self, link: ReportLink, load: LoadReport, context: Any) -> None:
        """Claim a worker's name, which belongs to one process. Another process, for example with a
        copied state directory, is refused."""
        address = str(source_of(context.peer()) or "")
        link.name = load.proxy_id
        link.incarnation = load.incarnation
        link.refused = await self._claim(load, address)
        if link.refused is None:
            self._refusals.accepted(context.peer())
            # a half-open link, or one from a process that was suspended
            for other in self._reports:
                if other.name == link.name and other.incarnation != link.incarnation:
                    other.refused = address

    def refuse(self, name: str, incarnation: str, address: str) -> None:
        """Refuse this incarnation: the process at ``address`` now owns the name."""
        for link in self._reports:
            if (link.name, link.incarnation) == (name, incarnation):
                link.refused = address

    @property
    def dialout(self) -> list[str]:
        """Addresses at which the proxies connected here accept connections from agents that only
        dial out."""
        return sorted({link.dialout for link in self._reports if link.dialout})

    @property
    def asks(self) -> dict[str, list[str]]:
        """Addresses that do not answer, by the name of the proxy that tries them, whose workers are
        combined. Empty if all answer."""
        found: dict[str, set[str]] = {
            link.proxy: set() for link in self._reports if link.reported_dialout
        }
        for link in self._reports:
            if link.reported_dialout:
                found[link.proxy].update(link.unreached)
        return {name: sorted(hosts) for name, hosts in found.items()}

    @property
    def count(self) -> int:
        """The number of proxies connected here, counting each worker separately."""
        return len(self._reports)

    def set_managers(self, managers: tuple[str, ...]) -> None:
        """Set the managers that share the proxies. Proxies receive their addresses with replies."""
        self._managers = managers

    def has(self, link: ReportLink) -> bool:
        return link in self._reports

    def hand_over(self, manager: str, count: int) -> list[ReportLink]:
        """Ask this number of proxies to switch to the manager at this address.

        A proxy that stays is asked again after a while. Returns their links."""
        now = self._clock.monotonic()
        free = (link for link in self._reports if now - link.asked_at > _HAND_OVER_AGAIN_S)
        chosen = list(islice(free, count))
        for link in chosen:
            link.asked_at = now
            link.manager = manager
        return chosen

    async def _divide(self, proxy: str, needs: Sequence[LimitNeed]) -> tuple[LimitShare, ...]:
        if not needs:
            return ()

        by_subject = {need.subject: need for need in needs}
        shares: dict[str, LimitShare] = {}
        proxies = await self._count_proxies()

        def decide(stored: StoredShares) -> StoredShares:
            shares[stored.subject], decided = share_of(
                by_subject[stored.subject], proxy, stored, proxies
            )
            return decided

        done = await self._shares.change(list(by_subject), decide)
        return tuple(shares[subject] for subject in done)

    async def _count_proxies(self) -> int:
        now = self._clock.monotonic()
        if now - self._proxies_at >= _PROXIES_S:
            self._proxies_at = now
            self._proxies = max(1, len(self._links), await self._shares.proxies())
        return self._proxies
