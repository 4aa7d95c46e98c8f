"""Waits for endpoints to become ready and for sessions to start or end, with progress."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

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
from moorage.common.model.status import Status
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.cli.progress import StageProgress
    from moorage.cli.summary import Stage
    from moorage.common.aio.clock import Clock
    from moorage.common.views.endpoints import EndpointView, ReplicaView, RolloutView
    from moorage.common.views.pipelines import PipelineView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

T = TypeVar("T")


async def _first(states: AsyncGenerator[T], condition: Callable[[T], bool]) -> T:
    # Imported here because showing a command's help does not need it.
    from moorage.sdk.waiting import first

    return await first(states, condition)


@contextmanager
def timeout_of(timeout_s: float | None, waiting_for: str, next_step: str) -> Iterator[None]:
    """Raise ``WaitTimeout`` if a wait times out."""
    try:
        yield
    except TimeoutError:
        raise WaitTimeout(
            f"{waiting_for} took longer than {format_duration(timeout_s or 0)}", next_step=next_step
        ) from None


class _Stages:
    """Progress of a session. Its history is read only when its revision has changed."""

    def __init__(self, client: Client, progress: StageProgress) -> None:
        self._client = client
        self._progress = progress
        self._session = ""
        self._revision = 0
        self._stages: list[Stage] = []

    async def show(self, view: SessionView) -> None:
        if view.id != self._session:
            self._session = view.id
            self._revision = 0
            self._progress.about(view.id)
        if view.revision != self._revision:
            self._stages = stages(await self._client.sessions.history(view.id), view.type)
            self._revision = view.revision
        self._progress.show(self._stages, hold_note(view), current_activity(view))


async def until_ready(
    client: Client,
    endpoint: EndpointView,
    *,
    clock: Clock,
    progress: StageProgress,
    timeout_s: float | None,
) -> EndpointView | ReplicaView:
    """Return the endpoint as soon as all its replicas are ready, or as many as there is currently
    room for. If a replica fails first, return that replica.

    Raises ``WaitTimeout``, and ``Conflict`` if the endpoint is deleted during the wait.
    """
    name = endpoint.name
    shown = _Stages(client, progress)
    held = False

    async def read() -> EndpointView:
        nonlocal held
        try:
            view = await client.endpoints.get(name)
            if (replica := leading_replica(view)) is not None:
                session = await client.sessions.get(replica.session_id)
                held = session.status is Status.PENDING and session.hold is not None
                await shown.show(session)
        except ApiError as error:
            if error.status == 404:
                raise Conflict(f"{name} was deleted during the wait") from error
            raise

        return view

    step = f"it keeps starting: `moorage describe {name}` shows what it waits for"
    states = client.events.states(
        read, "session", "endpoint", about=endpoint.id, timeout_s=timeout_s, clock=clock
    )
    with timeout_of(timeout_s, f"the start of {name}", step):
        view = await _first(
            states, lambda view: failed_replica(view) is not None or _has_what_fits(view, held=held)
        )

    return view if _has_what_fits(view, held=held) else failed_replica(view) or view


def _has_what_fits(view: EndpointView, *, held: bool) -> bool:
    """Whether the intended number of replicas is ready. ``held``: there is no room for another
    replica."""
    return bool(view.ready) and (held or view.ready >= view.replicas)


async def until_rolled_out(
    client: Client, name: str, *, clock: Clock, timeout_s: float | None
) -> RolloutView:
    """Return the state of the rollout as soon as it has ended. Raises ``WaitTimeout``."""
    view = await client.rollouts.get(name)
    if view.state != "progressing":
        return view

    endpoint = await client.endpoints.get(name)
    states = client.events.states(
        lambda: client.rollouts.get(name),
        "session",
        "endpoint",
        about=endpoint.id,
        timeout_s=timeout_s,
        clock=clock,
    )
    step = f"it continues: `moorage describe {name}` shows its replicas"
    with timeout_of(timeout_s, f"the rollout of {name}", step):
        return await _first(states, lambda view: view.state != "progressing")


async def until_session(
    client: Client,
    session: SessionView,
    condition: Callable[[SessionView], bool],
    *,
    clock: Clock,
    progress: StageProgress | None = None,
    timeout_s: float | None = None,
) -> SessionView:
    """Return the session as soon as ``condition`` holds. Raises ``WaitTimeout``."""
    shown = None if progress is None else _Stages(client, progress)

    async def read() -> SessionView:
        view = await client.sessions.get(session.id)
        if shown is not None:
            await shown.show(view)
        return view

    step = f"nothing was stopped: `moorage describe {session.name}` shows its state"
    states = client.events.states(
        read, "session", about=session.id, timeout_s=timeout_s, clock=clock
    )
    with timeout_of(timeout_s, f"waiting for {session.name}", step):
        return await _first(states, condition)


async def until_reloaded(
    client: Client, asked: Sequence[SessionView], *, clock: Clock, timeout_s: float | None
) -> list[SessionView]:
    """Return the sessions once all kernels have finished reloading. Raises ``WaitTimeout``."""
    from moorage.sdk.waiting import has_reloaded

    start = clock.monotonic()
    views = []
    for session in asked:
        remaining_s = None if timeout_s is None else max(timeout_s - (clock.monotonic() - start), 0)
        done = partial(has_reloaded, asked=session)
        views.append(await until_session(client, session, done, clock=clock, timeout_s=remaining_s))

    return views


async def until_ended(
    client: Client, sessions: Sequence[SessionView], *, clock: Clock, timeout_s: float | None
) -> list[SessionView]:
    """Return the sessions once all have ended. ``timeout_s`` limits the total wait. Raises
    ``WaitTimeout``."""
    start = clock.monotonic()
    views = []
    for session in sessions:
        remaining_s = None if timeout_s is None else max(timeout_s - (clock.monotonic() - start), 0)
        try:
            views.append(
                await until_session(client, session, has_ended, clock=clock, timeout_s=remaining_s)
            )
        except WaitTimeout:
            raise WaitTimeout(
                f"{session.name} has not ended within {format_duration(timeout_s or 0)}",
                next_step=f"it keeps stopping: `moorage describe {session.name}` shows its state",
            ) from None

    return views


async def until_pipeline_ended(
    client: Client, pipeline: PipelineView, clock: Clock, *, timeout_s: float | None
) -> PipelineView:
    """The pipeline, without its steps, once all of them have ended. ``timeout_s``: 0 reads it once.
    Raises ``WaitTimeout``."""
    # Imported here because showing a command's help does not need it.
    from moorage.sdk.pipelines import has_ended as pipeline_has_ended

    async def read() -> PipelineView:
        return await client.pipelines.get(pipeline.id, steps=False)

    if timeout_s == 0:
        return await read()
    step = f"it keeps stopping: `moorage describe {pipeline.name}` shows its state"
    states = client.events.states(read, "session", timeout_s=timeout_s, clock=clock)
    with timeout_of(timeout_s, f"the end of {pipeline.name}", step):
        return await _first(states, pipeline_has_ended)
