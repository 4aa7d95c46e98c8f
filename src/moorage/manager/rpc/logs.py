"""Broker for logs. The manager sends a request down the link, and the agent, which cannot be
dialed, answers with a call. If the agent is connected to another manager, the request goes to that
manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.pipe import Pipe
from moorage.common.link.messages import LogPiece, LogRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.cluster import MAIN
from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.status import TERMINAL
from moorage.common.views.resources import KernelView, SessionView
from moorage.manager.identity.scope import Scope
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.causes import has_failed_to_run, state_of
from moorage.manager.rpc.manager_link import ManagerLinkClient
from moorage.manager.store import Store

log = structlog.get_logger("moorage.logs")

FIRST_ANSWER_S = 10.0
# Chunks buffered for a slow reader; beyond that, the agent waits.
BUFFERED_CHUNKS = 64
POLL_S = 0.5
# Longest time from the end of a log to the report that its kernel has ended. Reports of changes
# arrive within a second.
END_S = 10.0


class LogBroker:
    def __init__(
        self, store: Store, links: AgentLinks, managers: ManagerLinkClient, clock: Clock
    ) -> None:
        self._store = store
        self._links = links
        self._managers = managers
        self._clock = clock
        # For each request, the agent that was asked and the receiver of its answer.
        self._readers: dict[str, tuple[AgentId, Pipe[agent_pb2.LogChunk]]] = {}

    async def read(
        self,
        scope: Scope,
        session: SessionView,
        *,
        tail_lines: int,
        follow: bool,
        attempt: int | None = None,
        hostname: str = MAIN,
        timestamps: bool = False,
        since_ms: int = 0,
        offset: int | None = None,
    ) -> AsyncIterator[LogPiece]:
        """Read the log of a kernel in the session's newest attempt, or in ``attempt``; with
        ``follow``, until the kernel ends. ``hostname`` selects a kernel of a cluster.
        ``timestamps``: prefix each line with its time. ``since_ms``: Unix time of the first line,
        or 0 for any. ``offset``: start at this byte, or at the first later one that is kept, and
        stop where bytes are missing; None means neither.

        The first piece is empty. It arrives once the agent of a live kernel answers, or while there
        is no kernel yet. Until then, a response to the reader must not start. If the agent numbers
        bytes, the first piece with an ``offset`` contains the number of the first byte of the
        answer.

        Before any other piece, raises ``NotFound`` if there is no log yet, or none with times;
        ``AgentUnreachable`` if the agent does not respond through any manager and no part of the
        log is stored; and ``Conflict`` if the agent is too old to add times. If there is no output,
        ``NotFound`` with the cause means that the kernel failed before it ran.
        """
        _require_hostname(session, hostname)
        kernel = _kernel(session, follow, attempt, hostname)
        if kernel is None:
            yield LogPiece(b"")

        while kernel is None:
            await asyncio.sleep(POLL_S)
            session = await self._store.sessions.get(scope, session.id)
            kernel = _kernel(session, follow, attempt, hostname)

        agent_id = kernel.agent_id or ""
        request = LogRequest(self._clock.new_id(), KernelId(kernel.id), tail_lines, follow)
        request = replace(request, timestamps=timestamps, since_ms=since_ms, offset=offset)
        answer = _Answer(request, kernel)
        try:
            async with aclosing(self._ask(agent_id, request)) as chunks:
                async for chunk in chunks:
                    if (piece := answer.piece(chunk)) is not None:
                        yield piece

            if not answer.has_data and (
                failed := await self._failed(scope, session, kernel, follow)
            ):
                raise _never_ran(session, failed)
        except (NotFound, AgentUnreachable) as error:
            goes_on = follow and session.status not in TERMINAL
            if answer.is_final or goes_on or not kernel.log_tail:
                if isinstance(error, NotFound) and not answer.has_data:
                    raise _without_log(session, error) from None
                raise

            yield LogPiece(kernel.log_tail.encode())

    async def _failed(
        self, scope: Scope, session: SessionView, kernel: KernelView, follow: bool
    ) -> KernelView | None:
        """Return ``kernel``, whose log has ended without a byte, if it failed before it ran.

        With ``follow``, the kernel has ended, but the agent's report of its end may not yet be
        stored."""
        deadline = self._clock.monotonic() + END_S
        while kernel.status not in TERMINAL and follow and self._clock.monotonic() < deadline:
            session = await self._store.sessions.get(scope, session.id)
            kernel = next((other for other in session.kernels if other.id == kernel.id), kernel)
            if kernel.status not in TERMINAL:
                await asyncio.sleep(POLL_S)

        return kernel if has_failed_to_run(kernel) else None

    def read_output(
        self, agent_id: str, session_id: SessionId, output: str
    ) -> AsyncGenerator[agent_pb2.LogChunk, None]:
        """Read an output that this agent has, without a time limit. Raises ``AgentUnreachable``."""
        request = LogRequest(
            self._clock.new_id(), KernelId(""), follow=True, output=output, session_id=session_id
        )
        return self._ask(agent_id, request)

    def _ask(self, agent_id: str, request: LogRequest) -> AsyncGenerator[agent_pb2.LogChunk, None]:
        if self._links.get(agent_id) is None:
            return self._managers.read_log(agent_id, request)
        return self.read_here(agent_id, request)

    async def read_here(
        self, agent_id: str, request: LogRequest
    ) -> AsyncGenerator[agent_pb2.LogChunk, None]:
        """Read the log of a kernel whose agent is connected to this manager. Raises
        ``AgentUnreachable``."""
        stream = self._links.get(agent_id)
        if stream is None:
            raise AgentUnreachable(f"agent {agent_id!r} is not connected to this manager")

        pipe = Pipe[agent_pb2.LogChunk](BUFFERED_CHUNKS)
        self._readers[request.request_id] = stream.agent_id, pipe
        try:
            stream.send_request(request)
            try:
                async with asyncio.timeout(FIRST_ANSWER_S):
                    chunk = await pipe.get()
            except TimeoutError:
                raise AgentUnreachable(f"agent {agent_id!r} did not respond") from None

            while chunk is not None:
                yield chunk
                chunk = await pipe.get()

            if pipe.broken:
                raise AgentUnreachable(f"agent {agent_id!r} was lost while it sent the log")
        finally:
            pipe.close()
            del self._readers[request.request_id]

    async def receive(
        self, chunks: AsyncIterator[agent_pb2.LogChunk], context: Any, caller: LinkCaller
    ) -> None:
        """Serve one call of ``SendLogs``, which answers one request. Returns when the reader
        disconnects, which ends the call. An agent other than the one that was asked is refused."""
        pipe: Pipe[agent_pb2.LogChunk] | None = None
        answered = ""
        marked = False
        complete = False
        try:
            async for chunk in chunks:
                agent_id, known = self._readers.get(chunk.request_id, ("", None))
                if known is None or answered not in ("", chunk.request_id):
                    return
                if wrong := caller.refusal_to_act_as(agent_id):
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)

                pipe = known
                answered = chunk.request_id
                marked = marked or chunk.marks_end
                complete = chunk.end
                await pipe.put(chunk)

            # The iteration also ends when the agent is lost.
            complete = complete or not marked
        finally:
            # Must not wait, because when the agent disconnects, its stream ends and this call is
            # cancelled.
            if pipe is not None:
                pipe.close(broken=not complete)


def _require_hostname(session: SessionView, hostname: str) -> None:
    """Raise ``NotFound`` if the session has kernels, but none with this hostname."""
    hostnames = list(dict.fromkeys(kernel.hostname for kernel in session.kernels))
    if hostnames and hostname not in hostnames:
        raise NotFound(
            f"session {session.name!r} has no kernel {hostname!r}; it has {', '.join(hostnames)}",
            next_step=f"`moorage describe {session.name}` lists them",
        )


class _Answer:
    """The data that an agent has sent. ``has_data``: it has sent a byte of the log. ``is_final``:
    the stored part of the log is not used instead, because that part has neither byte numbers nor
    times, and does not continue where an answer was interrupted.
    """

    def __init__(self, request: LogRequest, kernel: KernelView) -> None:
        self._request = request
        self._agent_id = kernel.agent_id or ""
        self._attempt = kernel.attempt
        self._is_live = kernel.status not in TERMINAL
        self._place: int | None = None
        self._is_identified = False
        self.has_data = False
        self.is_final = request.is_timed or bool(request.offset)

    def piece(self, chunk: agent_pb2.LogChunk) -> LogPiece | None:
        """The part of ``chunk`` to pass on. Raises ``NotFound``, ``Conflict``."""
        if chunk.error:
            raise NotFound(chunk.error)
        if self._request.is_timed and not self._is_identified and not chunk.timed:
            raise _too_old(self._agent_id)
        if chunk.HasField("offset"):
            self._place = chunk.offset
            self.is_final = True

        # The first chunk only identifies the log, and another identifies its beginning. The log of
        # a kernel that has ended shows immediately whether it has any content, so an answer without
        # content need not start.
        tells = self._is_live and (self._place is not None or not self._is_identified)
        self._is_identified = True
        if not chunk.data and not tells:
            return None

        place = self._place
        self._place = None
        self.has_data = self.has_data or bool(chunk.data)
        self.is_final = self.is_final or self.has_data

        return LogPiece(chunk.data, place, self._attempt)


def _kernel(
    session: SessionView, follow: bool, attempt: int | None, hostname: str
) -> KernelView | None:
    """The newest kernel that has an agent. With ``follow``, None while there may be one later.

    Raises ``NotFound`` if there is none."""
    named = [k for k in session.kernels if k.hostname == hostname]
    placed = [k for k in named if k.agent_id and attempt in (None, k.attempt)]
    if placed:
        return placed[-1]

    if attempt is not None and attempt != session.attempt:
        raise NotFound(
            f"attempt {attempt} of {session.name!r} has no log; the newest is {session.attempt}",
            next_step=f"`moorage describe {session.name}` lists the attempts that ran",
        )

    if not follow or session.status in TERMINAL:
        raise NotFound(
            f"session {session.name!r} has no log: it never started, and is {state_of(session)}",
            next_step=f"`moorage describe {session.name}` shows the reason",
        )

    return None


def _without_log(session: SessionView, error: NotFound) -> NotFound:
    if session.status not in TERMINAL:
        return error
    return NotFound(
        f"{error.message}; session {session.name!r} is {state_of(session)}",
        next_step=f"`moorage describe {session.name}` shows details",
    )


def _never_ran(session: SessionView, kernel: KernelView) -> NotFound:
    return NotFound(
        f"session {session.name!r} has no log: it failed before its program ran "
        f"({state_of(kernel)})",
        next_step=f"`moorage describe {session.name}` shows details",
    )


def _too_old(agent_id: str) -> Conflict:
    return Conflict(
        f"agent {agent_id!r}, or the manager that it is connected to, is too old to report the "
        "times of log lines",
        next_step="upgrade it, or omit timestamps and since",
    )
