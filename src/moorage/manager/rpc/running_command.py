"""A command that an agent runs, as seen from the user's side: pipes for its inputs and outputs.

A slow reader slows down the writer; nothing is buffered beyond a few chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from moorage.common.aio.pipe import Pipe
from moorage.common.link.dial import BROKEN
from moorage.common.link.pb import agent_pb2
from moorage.common.model.commands import Channel, ExecEnd, Size

# Chunks buffered for a slow reader, per direction; beyond that, the writer waits.
BUFFERED_CHUNKS = 8


class RelayedCommand:
    """``connected``: the agent runs it. ``closed``: its user has disconnected. ``end``: how it
    ended, if known."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.connected = asyncio.Event()
        self.closed = asyncio.Event()
        self.inputs: Pipe[agent_pb2.ExecInput] = Pipe(BUFFERED_CHUNKS)
        self.outputs: Pipe[agent_pb2.ExecOutput] = Pipe(BUFFERED_CHUNKS)
        self.end: ExecEnd | None = None

    async def send(self, data: bytes) -> None:
        await self.inputs.put(agent_pb2.ExecInput(stdin=data))

    async def end_input(self) -> None:
        await self.inputs.put(agent_pb2.ExecInput(stdin_ended=True))

    async def resize(self, size: Size) -> None:
        window = agent_pb2.TerminalSize(rows=size.rows, cols=size.cols)
        await self.inputs.put(agent_pb2.ExecInput(size=window))

    async def read(self) -> tuple[Channel, bytes] | None:
        """The next chunk of output, or None after the end (see ``end``)."""
        while (message := await self.read_message()) is not None:
            match message.WhichOneof("what"):
                case "stdout":
                    return Channel.STDOUT, message.stdout
                case "stderr":
                    return Channel.STDERR, message.stderr
                case "end":
                    return None

        return None

    async def read_message(self) -> agent_pb2.ExecOutput | None:
        """Read the next output as the agent sent it, including the end. Returns None after the last
        one."""
        message = await self.outputs.get()
        if message is not None and message.HasField("end"):
            self.end = _end(message.end)
        return message

    async def take_outputs(self, outputs: AsyncIterator[agent_pb2.ExecOutput]) -> None:
        """Receive outputs until the end or until the connection breaks. Either way, the reader gets
        an end."""
        try:
            async for message in outputs:
                await self.outputs.put(message)
                if message.HasField("end"):
                    return
        except BROKEN:
            pass
        finally:
            self.outputs.close()

    async def pass_inputs(self, write: Callable[[agent_pb2.ExecInput], Awaitable[Any]]) -> None:
        """Write inputs until the command is closed, or until the connection breaks."""
        with suppress(*BROKEN):
            while (message := await self.inputs.get()) is not None:
                await write(message)

    def close(self) -> None:
        self.closed.set()
        self.inputs.close()
        self.outputs.close()


def _end(wire: agent_pb2.ExecEnd) -> ExecEnd:
    code = wire.exit_code if wire.HasField("exit_code") else None
    return ExecEnd(exit_code=code, code=wire.code, detail=wire.detail, next_step=wire.next_step)
