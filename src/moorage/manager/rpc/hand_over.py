"""Hand-over of agents and proxies to managers that have fewer of them, as ``spreading`` decides.

A peer that is asked to switch does so on its own once the other manager answers. A peer that stays
is counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from moorage.common.aio.clock import Clock
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.proxy_links import ProxyLinks
from moorage.manager.rpc.spreading import Spreading
from moorage.manager.store.platform.managers import ManagerBeat

log = structlog.get_logger("moorage.link")


L = TypeVar("L")


class _Links(Protocol[L]):
    def has(self, link: L, /) -> bool: ...

    def hand_over(self, manager: str, count: int) -> list[L]: ...


class _Kind(Generic[L]):
    """One kind of peer: the peers that were asked last, and the time of the next decision."""

    def __init__(self, name: str, links: _Links[L]) -> None:
        self._name = name
        self._links = links
        self._spreading = Spreading()
        self._asked = list[L]()

    def look(self, own: str, counts: Mapping[str, int], now: float) -> None:
        self._asked = [link for link in self._asked if self._links.has(link)]
        for manager, count in self._spreading.decide(
            own, counts, now, left=len(self._asked)
        ).items():
            asked = self._links.hand_over(manager, count)
            self._asked += asked
            if asked:
                log.info(
                    "handing over",
                    kind=self._name,
                    to=manager,
                    count=len(asked),
                    counts=dict(counts),
                )


class HandOver:
    def __init__(self, links: AgentLinks, proxies: ProxyLinks, clock: Clock) -> None:
        self._links = links
        self._proxies = proxies
        self._clock = clock
        self._kinds = _Kind("agents", links), _Kind("proxies", proxies)

    def counts(self) -> tuple[int, int]:
        """The numbers of agents and of proxies connected to this manager."""
        return len(self._links.all()), self._proxies.count

    def look(self, own: str, others: Sequence[ManagerBeat]) -> None:
        """Run after each beat. ``own``: this manager's address.

        Managers that share an address, behind a load balancer, cannot be chosen, nor can managers
        of the previous release, which do not report counts."""
        addresses = Counter([own, *(other.link for other in others)])
        if addresses[own] > 1:
            return

        others = [other for other in others if addresses[other.link] == 1]
        agents, proxies = self._kinds
        own_agents, own_proxies = self.counts()
        now = self._clock.monotonic()
        known = {other.link: other.agent_links for other in others if other.agent_links is not None}
        agents.look(own, known | {own: own_agents}, now)
        known = {other.link: other.proxy_links for other in others if other.proxy_links is not None}
        proxies.look(own, known | {own: own_proxies}, now)
