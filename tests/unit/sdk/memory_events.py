"""The fake manager's event stream: a start, and then only the events that a test sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from moorage.manager.identity.audience import Audience


class MemoryEvents:
    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()
        self.asked: list[tuple[Audience, str]] = []

    async def stream(self, audience: Audience, last_event_id: str) -> AsyncGenerator[bytes]:
        self.asked.append((audience, last_event_id))
        yield b"event: ready\ndata: {}\n\n"
        while part := await self.parts.get():
            yield part

    def close(self) -> None:
        self.parts.put_nowait(b"")
