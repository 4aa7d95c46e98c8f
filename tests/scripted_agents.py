"""Agents with scripted answers, as the API receives them: logs, commands and workspaces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from moorage.common.aio.pipe import Pipe
from moorage.common.link.log_request import LogPiece
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec, Size
from moorage.common.model.errors import Conflict, MoorageError
from moorage.common.views.resources import SessionView
from moorage.common.views.workspaces import WorkspaceList, WorkspaceView
from moorage.manager.identity.scope import Scope


class Echo:
    """A command that prints its input, and exits with 7 when the input ends. ``blocked``: it reads
    no input.

    ``resizes``: the terminal sizes received. ``received_bytes``: the number of input bytes
    received."""

    def __init__(self, *, blocked: bool) -> None:
        self.end: ExecEnd | None = None
        self.resizes: list[str] = []
        self.received_bytes = 0
        self._blocked = blocked
        self._output: Pipe[bytes] = Pipe(4)

    async def send(self, data: bytes) -> None:
        self.received_bytes += len(data)
        await (asyncio.Event().wait() if self._blocked else self._output.put(data))

    async def end_input(self) -> None:
        self.end = ExecEnd(exit_code=7)
        self._output.close()

    async def resize(self, size: Size) -> None:
        self.resizes.append(f"{size.rows}x{size.cols}")

    async def read(self) -> tuple[Channel, bytes] | None:
        chunk = await self._output.get()
        return None if chunk is None else (Channel.STDOUT, chunk)


class ScriptedCommands:
    """``blocked``: commands read no input. ``requests``: the session name, spec and actor of each
    command.

    ``disconnected``: set when a user has disconnected."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ExecSpec, str]] = []
        self.opened: list[Echo] = []
        self.disconnected = asyncio.Event()
        self.blocked = False
        # Requests about code runs (session, hostname and content), and the answers by operation.
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: dict[str, bytes | ExecEnd] = {}

    async def check(self, session: SessionView) -> None:
        if session.name == "stopped":
            raise Conflict("it is not running")

    @asynccontextmanager
    async def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AsyncIterator[Echo]:
        self.requests.append((session.name, spec, actor))
        self.opened.append(Echo(blocked=self.blocked))
        try:
            yield self.opened[-1]
        finally:
            self.disconnected.set()

    @asynccontextmanager
    async def ask(
        self, session: SessionView, hostname: str, code: str
    ) -> AsyncIterator[ScriptedAnswer]:
        self.asked.append((session.name, hostname, json.loads(code)))
        yield ScriptedAnswer(self.answers.get(json.loads(code)["op"], ExecEnd(exit_code=127)))


class ScriptedAnswer:
    """The output in pieces, or the refusal of the request."""

    def __init__(self, answer: bytes | ExecEnd) -> None:
        data = answer if isinstance(answer, bytes) else b""
        self._pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
        self.end = ExecEnd(exit_code=0) if isinstance(answer, bytes) else answer

    async def read(self) -> tuple[Channel, bytes] | None:
        return (Channel.STDOUT, self._pieces.pop(0)) if self._pieces else None

    async def send(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def resize(self, size: Size) -> None: ...


class ScriptedWorkspaces:
    """``kept``: workspaces by session id. ``in_use``: the ids whose removal is refused.

    ``silent``: agents that do not respond."""

    def __init__(self) -> None:
        self.kept: dict[str, WorkspaceView] = {}
        self.silent: list[str] = []
        self.in_use: set[str] = set()

    def keep(self, session_id: str) -> None:
        self.kept[session_id] = WorkspaceView(
            session_id=session_id,
            agent_id="node-1",
            size=3,
            changed_at=datetime(2026, 1, 1, tzinfo=UTC),
            in_use=False,
        )

    async def ask(self, remove: str = "") -> WorkspaceList:
        if remove in self.in_use:
            raise Conflict("it is in use")
        items = list(self.kept.values())
        if remove:
            items = [self.kept.pop(remove)] if remove in self.kept else []
        return WorkspaceList(items=items, silent=self.silent)


class ScriptedLogs:
    """Yields ``chunks``, then waits for ``more`` if the log is followed. ``closed``: a read has
    ended.

    ``requests``: the session name, tail lines and follow flag of each read."""

    def __init__(self) -> None:
        self.chunks: list[bytes | MoorageError | RuntimeError] = []
        self.more: asyncio.Queue[bytes | MoorageError | None] = asyncio.Queue()
        self.requests: list[tuple[str, int, bool]] = []
        self.closed = asyncio.Event()

    async def read(
        self,
        scope: Scope,
        session: SessionView,
        *,
        tail_lines: int,
        follow: bool,
        attempt: int | None,
        hostname: str,
        timestamps: bool = False,
        since_ms: int = 0,
        offset: int | None = None,
    ) -> AsyncIterator[LogPiece]:
        self.requests.append((session.name, tail_lines, follow))
        try:
            if not self.chunks:
                yield LogPiece(b"")  # the agent has answered

            for chunk in self.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield LogPiece(chunk)

            while follow and (item := await self.more.get()) is not None:
                if isinstance(item, MoorageError):
                    raise item
                yield LogPiece(item)
        finally:
            self.closed.set()
