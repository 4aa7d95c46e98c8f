"""Commands in sessions, kept in memory: each says back what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from moorage.common.aio.pipe import Pipe
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec, Size
from moorage.common.model.errors import Conflict
from moorage.common.views.resources import SessionView, WorkspaceList, WorkspaceView


class Echo:
    """Ends with 7 when its input does. ``held``: it takes no input."""

    def __init__(self, *, held: bool) -> None:
        self.end: ExecEnd | None = None
        self.told: list[str] = []
        self.taken = 0
        self._held = held
        self._said: Pipe[bytes] = Pipe(4)

    async def send(self, data: bytes) -> None:
        self.taken += len(data)
        await (asyncio.Event().wait() if self._held else self._said.put(data))

    async def end_input(self) -> None:
        self.end = ExecEnd(exit_code=7)
        self._said.close()

    async def resize(self, size: Size) -> None:
        self.told.append(f"{size.rows}x{size.cols}")

    async def read(self) -> tuple[Channel, bytes] | None:
        said = await self._said.get()
        return None if said is None else (Channel.STDOUT, said)


class MemoryExecs:
    """``held``: commands take no input. ``left``: a user has gone."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ExecSpec, str]] = []
        self.opened: list[Echo] = []
        self.left = asyncio.Event()
        self.held = False

    def check(self, session: SessionView) -> None:
        if session.name == "still":
            raise Conflict("it does not run")

    @asynccontextmanager
    async def open(self, session: SessionView, spec: ExecSpec, *, actor: str) -> AsyncIterator[Echo]:
        self.asked.append((session.name, spec, actor))
        self.opened.append(Echo(held=self.held))
        try:
            yield self.opened[-1]
        finally:
            self.left.set()


class MemoryWorkspaces:
    """``kept``: by session; those in ``refusing`` cannot be removed."""

    def __init__(self) -> None:
        self.kept: dict[str, WorkspaceView] = {}
        self.silent: list[str] = []
        self.refusing: set[str] = set()

    def keep(self, session_id: str) -> None:
        self.kept[session_id] = WorkspaceView(
            session_id=session_id,
            agent_id="node-1",
            size=3,
            changed_at=datetime(2026, 1, 1, tzinfo=UTC),
            in_use=False,
        )

    async def ask(self, remove: str = "") -> WorkspaceList:
        if remove in self.refusing:
            raise Conflict("it is in use")
        items = list(self.kept.values())
        if remove:
            items = [self.kept.pop(remove)] if remove in self.kept else []
        return WorkspaceList(items=items, silent=self.silent)
