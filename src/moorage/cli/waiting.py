"""Waiting for an endpoint to be ready and for sessions to end, with progress; all by looking again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from moorage.cli.failures import TookTooLong
from moorage.cli.progress import Progress
from moorage.cli.story import doing_now, ended, failed_replica, stages, waiting_note, watched
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict
from moorage.common.model.status import LIVE, Status
from moorage.common.views.resources import EndpointView, ReplicaView, SessionView
from moorage.sdk import ApiError, Client, Unreachable

LOOK_AGAIN_S = 0.2
# A manager that restarts is away for a moment; a wait outlives that.
AWAY_S = 30.0


async def looks(
    clock: Clock, timeout_s: float | None, waiting_for: str, next_step: str
) -> AsyncIterator[None]:
    """One turn at once and then one each ``LOOK_AGAIN_S``. Raises ``TookTooLong`` after ``timeout_s``."""
    start = clock.monotonic()
    while True:
        yield
        left = None if timeout_s is None else timeout_s - (clock.monotonic() - start)
        if left is not None and left <= 0:
            raise TookTooLong(f"{waiting_for} took longer than {timeout_s:g} s", next_step=next_step)
        await asyncio.sleep(LOOK_AGAIN_S if left is None else min(LOOK_AGAIN_S, left))


class Patience:
    """Lets a manager be away for ``AWAY_S`` seconds within a wait, then lets its error through."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def answered(self) -> None:
        self._since = None

    def missed(self, error: Unreachable | ApiError) -> None:
        if isinstance(error, ApiError) and error.status not in (502, 503, 504):
            raise error
        self._since = self._since or self._clock.monotonic()
        if self._clock.monotonic() - self._since > AWAY_S:
            raise error


async def until_ready(
    client: Client, name: str, *, clock: Clock, progress: Progress, timeout_s: float | None
) -> EndpointView | ReplicaView:
    """The endpoint when one of its replicas is ready, or the replica that failed meanwhile.

    Raises ``TookTooLong``, and ``Conflict`` when the endpoint was deleted while we waited.
    """
    patience, following = Patience(clock), ""
    step = f"it is left as it is: `moorage describe {name}` shows what it waits for"
    async for _ in looks(clock, timeout_s, f"the start of {name}", step):
        try:
            view = await client.get_endpoint(name)
            replica = watched(view)
            if replica is not None:
                if replica.session_id != following:
                    following = replica.session_id
                    progress.restart()
                session = await client.get_session(following)
                told = stages(await client.history(following))
                progress.show(told, waiting_note(session), doing_now(session))
        except Unreachable as error:
            patience.missed(error)
            continue
        except ApiError as error:
            if error.status == 404:
                raise Conflict(f"{name} was deleted while we waited for it") from error
            patience.missed(error)
            continue
        patience.answered()
        if view.ready:
            return view
        if (failed := failed_replica(view)) is not None:
            return failed
    raise AssertionError("looks() only ends by raising")


async def until_session(
    client: Client,
    ref: str,
    enough: Callable[[SessionView], bool],
    *,
    clock: Clock,
    progress: Progress | None = None,
    timeout_s: float | None = None,
) -> SessionView:
    """The session as soon as ``enough`` holds. Raises ``TookTooLong``."""
    patience = Patience(clock)
    step = f"it is left as it is: `moorage describe {ref}`"
    async for _ in looks(clock, timeout_s, f"waiting for {ref}", step):
        try:
            view = await client.get_session(ref)
            if progress is not None:
                told = stages(await client.history(ref), view.type)
                progress.show(told, waiting_note(view), doing_now(view))
        except (Unreachable, ApiError) as error:
            patience.missed(error)
            continue
        patience.answered()
        if enough(view):
            return view
    raise AssertionError("looks() only ends by raising")


async def until_ended(
    client: Client, waited: Sequence[SessionView], *, clock: Clock, timeout_s: float | None
) -> list[SessionView]:
    """All of them when the last has ended. Raises ``TookTooLong``; ``timeout_s`` is for all together."""
    start, views = clock.monotonic(), []
    for session in waited:
        left = None if timeout_s is None else max(timeout_s - (clock.monotonic() - start), 0)
        try:
            views.append(await until_session(client, session.id, ended, clock=clock, timeout_s=left))
        except TookTooLong:
            raise TookTooLong(
                f"{session.name} has not ended within {timeout_s:g} s",
                next_step=f"it goes on stopping by itself: `moorage describe {session.name}`",
            ) from None
    return views


async def live_sessions(client: Client, endpoint: str | None = None) -> list[SessionView]:
    """All that have not ended, newest first."""
    return await all_sessions(client, LIVE, endpoint)


async def all_sessions(
    client: Client, statuses: Collection[Status] = (), endpoint: str | None = None
) -> list[SessionView]:
    found: list[SessionView] = []
    cursor: str | None = None
    while True:
        page = await client.list_sessions(statuses=statuses, endpoint=endpoint, cursor=cursor, limit=100)
        found += page.items
        if not (cursor := page.next):
            return found


async def all_endpoints(client: Client) -> list[EndpointView]:
    found: list[EndpointView] = []
    cursor: str | None = None
    while True:
        page = await client.list_endpoints(cursor=cursor, limit=100)
        found += page.items
        if not (cursor := page.next):
            return found
