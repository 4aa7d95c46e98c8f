"""Use of a site's nodes by all jobs together, queried periodically."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.common.aio.clock import Clock
from moorage.common.model.kernel import SiteNodes

log = structlog.get_logger("moorage.agent.nodes")
# HEAppE caches its own answer for the same time.
ASK_EVERY_S = 120.0
# An older answer does not reflect the site's current state.
_FORGET_AFTER_S = 600.0


class NodeUsage:
    """The use of the nodes. ``ask`` queries the site, and raises ``RuntimeFailed`` if there is no
    answer."""

    def __init__(self, ask: Callable[[], Awaitable[tuple[SiteNodes, ...]]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._asked_at = float("-inf")
        self._answered_at = self._asked_at
        self._nodes: tuple[SiteNodes, ...] = ()

    def current(self) -> tuple[SiteNodes, ...]:
        is_old = self._clock.monotonic() - self._answered_at > _FORGET_AFTER_S
        return () if is_old else self._nodes

    async def refresh(self) -> None:
        """Query the site if it is due. A site that did not answer is queried again when it is due
        again."""
        now = self._clock.monotonic()
        if now - self._asked_at < ASK_EVERY_S:
            return

        self._asked_at = now
        try:
            self._nodes = await self._ask()
        except RuntimeFailed as error:
            log.debug(
                "the site does not report how many of its nodes are in use", why=error.message
            )
        else:
            self._answered_at = now
