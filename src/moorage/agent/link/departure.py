"""Departure from a manager to a better one, which has access to its database or has fewer agents.

The agent leaves only once the other manager answers. It leaves for an equal manager only while it
is not serving a command or log, because these end with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from moorage.agent.link import answers
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import FullReportRequest

_SEARCH_EVERY_S = 2.0  # for a manager that has access to its database
# How often, and how many times, to check whether the agent is free to switch to an equal manager.
_LOOK_S = 0.2
_LOOKS = 100


class Departure:
    """The departure of one stream. ``served``: the requests that the stream is serving. ``leave``
    ends the stream, and ``has_begun`` is true from then on."""

    def __init__(
        self, dialer: Dialer, clock: Clock, served: Collection[Any], leave: Callable[[], object]
    ) -> None:
        self._dialer = dialer
        self._clock = clock
        self._served = served
        self._leave = leave
        self._task: asyncio.Task[None] | None = None
        self.has_begun = False

    def consider(self, request: FullReportRequest) -> None:
        """Consider the manager's advice about whether another manager would serve better. The
        latest advice applies."""
        if self._task is not None:
            self._task.cancel()
        if request.no_database:
            self._task = spawn("link.search", self._leave_for_better())
        elif request.manager and request.manager != self._dialer.target:
            self._task = spawn("link.move", self._leave_for(request.manager))

    async def close(self) -> None:
        await cancel_and_wait(self._task)

    async def _leave_for_better(self) -> None:
        """Leave a manager that has lost its database, but only for one that can reach it.
        Otherwise, nothing would be gained, and commands would be cut off."""
        found = False
        while not found:
            await asyncio.sleep(_SEARCH_EVERY_S / 2 * self._clock.jitter(0.5))
            found = await self._dialer.find_better(answers.CALL_TIMEOUT_S)
        self.has_begun = True
        self._leave()

    async def _leave_for(self, manager: str) -> None:
        """Leave for an equal manager. The agent stays if it remains busy or the other manager does
        not answer, because another agent may leave instead."""
        if manager not in self._dialer.redial.others:
            return

        for _ in range(_LOOKS):
            if not self._served and await self._dialer.prefer(manager, answers.CALL_TIMEOUT_S):
                break
            await asyncio.sleep(_LOOK_S)
        else:
            return

        if not self._served:
            self.has_begun = True
            self._leave()
