"""Presence of this manager in the database: its heartbeats, and the removal of managers that have
stopped.

Agents of a removed manager are detached: nothing is placed on them until they are connected to
another manager. Only this module decides that a manager is away, by its own monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store
from moorage.manager.store.platform.managers import ManagerBeat

log = structlog.get_logger("moorage.presence")

BEAT_S = 1.0
# A manager without a beat for this long is considered away. It returns with its next beat, and its
# agents return with their reports.
AWAY_AFTER_S = 3.0
# Without a successful beat for this long, this manager reports that it has lost its database.
DATABASE_LOST_AFTER_S = 3.0
_BEAT_TIMEOUT_S = 2.0


class BeatWatch:
    """Tracks how long the beats of other managers have been unchanged. Pure."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked_at = 0.0

    def away(self, beats: Mapping[str, int], now: float) -> list[str]:
        """The managers whose beat has not changed for ``AWAY_AFTER_S``. ``now``: monotonic seconds.
        After a pause in which no beats were examined, and perhaps none could be written, all
        managers get this time again."""
        if now - self._looked_at > 2 * BEAT_S:
            self._seen.clear()

        self._looked_at = now
        self._seen = {
            manager: seen if (seen := self._seen.get(manager)) and seen[0] == beat else (beat, now)
            for manager, beat in beats.items()
        }
        return [
            manager for manager, (_, since) in self._seen.items() if now - since >= AWAY_AFTER_S
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnFacts:
    """The state that a manager reports with each beat.

    ``links``: how many agents and proxies are connected to it. ``dialout``: where these proxies
    accept connections from agents that only dial out. ``asks``: the addresses that do not answer a
    proxy, by the proxy's name. ``plain_senders``: who uses an interface without TLS, by kind.
    """

    links: Callable[[], tuple[int, int]] = lambda: (0, 0)
    dialout: Callable[[], list[str]] = list
    asks: Callable[[], dict[str, list[str]]] = dict
    plain_senders: Callable[[], dict[str, list[str]]] = dict


_NO_FACTS = OwnFacts()


class Presence:
    """``link``: the address at which agents, proxies and other managers reach this manager, from
    its first beat on.

    ``managers``: the addresses of all managers. ``dialout_addresses``: where all managers' proxies
    accept connections from agents that only dial out. ``has_database``: whether the last beat was
    written recently. ``on_change`` gets this object when any of these has changed. ``on_beat`` gets
    the manager's own address and the other managers after each beat.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        link: Callable[[], str],
        *,
        facts: OwnFacts = _NO_FACTS,
        on_change: Callable[[Presence], None] = lambda _: None,
        on_beat: Callable[[str, Sequence[ManagerBeat]], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._link = link
        self._facts = facts
        self._on_change = on_change
        self._on_beat = on_beat
        self._proxies: Counter[str] = Counter()
        self._watch = BeatWatch()
        self._written_at = clock.monotonic()
        self.managers: tuple[str, ...] = ()
        self.has_database = True
        self.dialout_addresses: tuple[str, ...] = ()
        self.loop = Loop("presence", self._tick, interval_s=BEAT_S, clock=clock)

    @property
    def link(self) -> str:
        return self._link()

    def proxy_connected(self, name: str) -> None:
        self._proxies[name] += 1

    def proxy_disconnected(self, name: str) -> None:
        self._proxies -= Counter([name])  # names without a connection are left out

    async def _tick(self) -> None:
        try:
            async with asyncio.timeout(_BEAT_TIMEOUT_S):
                await self.run_once()
        except (StoreUnavailable, TimeoutError) as error:
            if (
                self._clock.monotonic() - self._written_at >= DATABASE_LOST_AFTER_S
                and self.has_database
            ):
                log.warning(
                    "the database is unreachable: agents may switch to another manager",
                    error=str(error),
                )
                self._set(self.managers, self.dialout_addresses, has_database=False)

    async def run_once(self) -> None:
        own = self._store.managers.own_id
        link = self.link
        agent_links, proxy_links = self._facts.links()
        own_dialout = self._facts.dialout()
        found = await self._store.managers.beat(
            link,
            list(self._proxies),
            own_dialout,
            agent_links,
            proxy_links=proxy_links,
            now=self._clock.now(),
            asks=self._facts.asks(),
            plain_senders=self._facts.plain_senders(),
        )
        now = self._clock.monotonic()
        self._written_at = now
        others = [row for row in found if row.id != own]
        away = self._watch.away({row.id: row.beat for row in others}, now)
        others = [row for row in others if row.id not in away]
        dialout = tuple(sorted({a for row in others for a in row.dialout}.union(own_dialout)))
        managers = tuple(sorted({row.link for row in others} | {link}))
        self._set(managers, dialout, has_database=True)
        self._on_beat(link, others)

        if away:
            agents = await self._store.managers.remove(away)
            log.warning("a manager is away", managers=away, agents=len(agents))

    def _set(
        self, managers: tuple[str, ...], dialout: tuple[str, ...], *, has_database: bool
    ) -> None:
        before = self.managers, self.dialout_addresses, self.has_database
        if (managers, dialout, has_database) != before:
            self.managers = managers
            self.dialout_addresses = dialout
            self.has_database = has_database
            self._on_change(self)

    async def __aenter__(self) -> Presence:
        await self.run_once()
        await self.loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.loop.__aexit__()
        try:
            await self._store.managers.remove([self._store.managers.own_id])
        except StoreUnavailable:
            log.info("could not record that this manager stops: others will notice")
