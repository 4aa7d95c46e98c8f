"""End of long requests whose caller has lost its rights: streams, WebSockets, terminals, forwarded ports.

A request is authenticated when it begins. One that lasts is authenticated again every few seconds, so that a
revoked or expired key, or a change of its role or project, also ends what it had opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import structlog
from aiohttp import web

from moorage.common.aio.tasks import spawn
from moorage.common.model.errors import MoorageError
from moorage.manager.identity.scope import Scope

log = structlog.get_logger("moorage.api")
# Between two checks of the rights of one request.
RECHECK_S = 5.0
_REFUSED = (401, 403)


def has_lost_rights(before: Scope, now: Scope) -> bool:
    """Whether what ``before`` allowed may be forbidden now. A key's restrictions may change meanwhile: they
    hold for its next requests."""
    return (before.owner, before.role, before.projects) != (now.owner, now.role, now.projects)


@contextmanager
def ending_without_rights(
    request: web.Request, scope: Scope, renew: Callable[[], Awaitable[Scope]]
) -> Iterator[None]:
    """Close the connection of the request once ``renew`` refuses its credentials. Short requests cost a timer
    only."""
    watching: list[asyncio.Task[None]] = []
    timer = asyncio.get_running_loop().call_later(
        RECHECK_S, lambda: watching.append(spawn("api.rights", _watch(request, scope, renew)))
    )
    try:
        yield
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()


async def _watch(request: web.Request, scope: Scope, renew: Callable[[], Awaitable[Scope]]) -> None:
    while True:
        if await _is_refused(scope, renew):
            break
        await asyncio.sleep(RECHECK_S)
    log.info("request ended: its caller has lost its rights", actor=scope.actor, path=request.path)
    if request.transport is not None:
        request.transport.abort()


async def _is_refused(scope: Scope, renew: Callable[[], Awaitable[Scope]]) -> bool:
    """A database that does not answer ends no request."""
    with suppress(OSError):
        try:
            return has_lost_rights(scope, await renew())
        except MoorageError as error:
            return error.http in _REFUSED
    return False
