"""Termination of long requests whose caller has lost its rights: streams, WebSockets, terminals,
forwarded ports.

A request is authenticated when it starts. A long request is authenticated again whenever keys,
users or projects have changed, and every few seconds, because a notification may be lost and keys
expire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog
from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import MoorageError
from moorage.manager.identity.scope import Scope

log = structlog.get_logger("moorage.api")
# Seconds between two checks without a change.
RECHECK_S = 5.0
# Seconds between a change and the check, because changes come in bursts.
_PAUSE_S = 0.1
# Requests younger than this are not checked. A request that changes rights may revoke its own
# caller's rights, and the caller must still receive the response.
YOUNG_S = 1.0
_AT_ONCE = 16
_REFUSED = (401, 403)


def has_lost_rights(before: Scope, now: Scope) -> bool:
    """Whether an action that ``before`` allowed may now be forbidden.

    A key's restrictions may have changed; they apply to its next requests."""
    return (before.owner, before.role, before.projects) != (now.owner, now.role, now.projects)


@dataclass(slots=True, eq=False)
class _Open:
    """``renew`` returns the current scope of the same credentials, or raises the API's refusal."""

    request: web.Request
    scope: Scope
    renew: Callable[[], Awaitable[Scope]]
    since: float  # event-loop time


class OpenRequests:
    """All requests that are being served, each with the rights that it had when it started.

    ``on_change`` subscribes to changes of keys, users and projects."""

    def __init__(self, clock: Clock, on_change: Callable[[Callable[[], None]], object]) -> None:
        self._open: set[_Open] = set()
        self._on_change = on_change
        self._changed_at = 0.0  # event-loop time
        self._next: asyncio.TimerHandle | None = None
        self._loop = Loop("rights", self._tick, interval_s=RECHECK_S, clock=clock)

    async def running(self, _: web.Application) -> AsyncIterator[None]:
        """Application context in which requests are checked."""
        self._on_change(self._changed)
        async with self._loop:
            yield
        if self._next is not None:
            self._next.cancel()

    @contextmanager
    def ending_without_rights(
        self, request: web.Request, scope: Scope, renew: Callable[[], Awaitable[Scope]]
    ) -> Iterator[None]:
        """Close the request's connection once ``renew`` refuses its credentials."""
        opened = _Open(request, scope, renew, asyncio.get_running_loop().time())
        self._open.add(opened)
        try:
            yield
        finally:
            self._open.discard(opened)

    def _changed(self) -> None:
        if self._open:
            self._changed_at = asyncio.get_running_loop().time()
            self._check_at(self._changed_at + _PAUSE_S)

    def _check_at(self, at: float) -> None:
        """Schedule a check for this event-loop time at the latest."""
        if self._next is not None:
            if self._next.when() <= at:
                return
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_at(at, self._due)

    def _due(self) -> None:
        self._next = None
        self._loop.nudge()

    async def _tick(self) -> None:
        began_before = asyncio.get_running_loop().time() - YOUNG_S
        lasting = [opened for opened in self._open if opened.since <= began_before]
        young = [
            opened.since for opened in self._open if began_before < opened.since <= self._changed_at
        ]
        if young:
            self._check_at(min(young) + YOUNG_S)
        for at in range(0, len(lasting), _AT_ONCE):
            await asyncio.gather(*(self._check(opened) for opened in lasting[at : at + _AT_ONCE]))

    async def _check(self, opened: _Open) -> None:
        if not await _is_refused(opened.scope, opened.renew) or opened not in self._open:
            return

        request = opened.request
        log.info(
            "request ended: its caller has lost its rights",
            actor=opened.scope.actor,
            path=request.path,
        )
        if request.transport is not None:
            request.transport.abort()


async def _is_refused(scope: Scope, renew: Callable[[], Awaitable[Scope]]) -> bool:
    """Whether the credentials are refused. An unavailable database does not end any request."""
    with suppress(OSError):
        try:
            return has_lost_rights(scope, await renew())
        except MoorageError as error:
            return error.http in _REFUSED
    return False
