"""Waits for endpoints to become ready and for sessions to start or end: by polling, with progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from moorage.cli.errors import WaitTimeout
from moorage.cli.summary import (
    current_activity,
    failed_replica,
    has_ended,
    hold_note,
    leading_replica,
    stages,
)
from moorage.common.model.durations import format_duration
from moorage.common.model.errors import Conflict
from moorage.sdk import ApiError, Unreachable

if TYPE_CHECKING:
    from moorage.cli.progress import Progress
    from moorage.common.aio.clock import Clock
    from moorage.common.views.endpoints import EndpointView, ReplicaView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

POLL_S = 0.2
# A wait survives a restart of the manager.
OUTAGE_S = 30.0


async def polls(
    clock: Clock, timeout_s: float | None, waiting_for: str, next_step: str
) -> AsyncIterator[None]:
    """Yields at once and then every ``POLL_S``. Raises ``WaitTimeout`` after ``timeout_s``."""
    start = clock.monotonic()
    while True:
        yield
        remaining_s = None if timeout_s is None else timeout_s - (clock.monotonic() - start)
        if remaining_s is not None and remaining_s <= 0:
            raise WaitTimeout(
                f"{waiting_for} took longer than {format_duration(timeout_s or 0)}", next_step=next_step
            )
        await asyncio.sleep(POLL_S if remaining_s is None else min(POLL_S, remaining_s))


class OutageTolerance:
    """Tolerates that the manager does not answer for ``OUTAGE_S`` seconds, then raises its error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def succeeded(self) -> None:
        self._since = None

    def failed(self, error: Unreachable | ApiError) -> None:
        if isinstance(error, ApiError) and error.status not in (502, 503, 504):
            raise error
        self._since = self._since or self._clock.monotonic()
        if self._clock.monotonic() - self._since > OUTAGE_S:
            raise error


async def until_ready(
    client: Client, name: str, *, clock: Clock, progress: Progress, timeout_s: float | None
) -> EndpointView | ReplicaView:
    """The endpoint as soon as a replica is ready, or the replica that failed first.

    Raises ``WaitTimeout``, and ``Conflict`` when the endpoint is deleted during the wait.
    """
    outage, following = OutageTolerance(clock), ""
    step = f"it keeps starting: `moorage describe {name}` shows what it waits for"
    async for _ in polls(clock, timeout_s, f"the start of {name}", step):
        try:
            view = await client.get_endpoint(name)
            replica = leading_replica(view)
            if replica is not None:
                if replica.session_id != following:
                    following = replica.session_id
                    progress.restart()
                session = await client.get_session(following)
                progressed = stages(await client.history(following))
                progress.show(progressed, hold_note(session), current_activity(session))
        except Unreachable as error:
            outage.failed(error)
            continue
        except ApiError as error:
            if error.status == 404:
                raise Conflict(f"{name} was deleted during the wait") from error
            outage.failed(error)
            continue
        outage.succeeded()
        if view.ready:
            return view
        if (failed := failed_replica(view)) is not None:
            return failed
    raise AssertionError("polls() only ends by raising")


async def until_session(
    client: Client,
    ref: str,
    condition: Callable[[SessionView], bool],
    *,
    clock: Clock,
    progress: Progress | None = None,
    timeout_s: float | None = None,
) -> SessionView:
    """The session as soon as ``condition`` holds. Raises ``WaitTimeout``."""
    outage = OutageTolerance(clock)
    step = f"nothing was stopped: `moorage describe {ref}` shows its state"
    async for _ in polls(clock, timeout_s, f"waiting for {ref}", step):
        try:
            view = await client.get_session(ref)
            if progress is not None:
                progressed = stages(await client.history(ref), view.type)
                progress.show(progressed, hold_note(view), current_activity(view))
        except (Unreachable, ApiError) as error:
            outage.failed(error)
            continue
        outage.succeeded()
        if condition(view):
            return view
    raise AssertionError("polls() only ends by raising")


async def until_ended(
    client: Client, sessions: Sequence[SessionView], *, clock: Clock, timeout_s: float | None
) -> list[SessionView]:
    """The sessions when all have ended. ``timeout_s`` bounds the total wait. Raises ``WaitTimeout``."""
    start, views = clock.monotonic(), []
    for session in sessions:
        remaining_s = None if timeout_s is None else max(timeout_s - (clock.monotonic() - start), 0)
        try:
            views.append(
                await until_session(client, session.id, has_ended, clock=clock, timeout_s=remaining_s)
            )
        except WaitTimeout:
            raise WaitTimeout(
                f"{session.name} has not ended within {format_duration(timeout_s or 0)}",
                next_step=f"it keeps stopping: `moorage describe {session.name}` shows its state",
            ) from None
    return views
