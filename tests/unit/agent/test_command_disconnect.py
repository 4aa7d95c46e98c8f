"""A user's disconnect, which the agent detects in several ways at once: the command is disconnected
once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.agent.execution.commands import KernelCommand, serve_exec
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2

REQUEST = ExecRequest("r1", "k1", command=("tool",), tty=False, stdin=True, rows=0, cols=0, env={})


class Call:
    """The ``Exec`` call as the agent sees it; ``leave`` simulates the user's disconnect."""

    def __init__(self) -> None:
        self._left = asyncio.Event()
        self._done = list[Callable[[Any], None]]()
        self.cancelled = False

    def add_done_callback(self, done: Callable[[Any], None]) -> None:
        self._done.append(done)

    async def write(self, message: agent_pb2.ExecOutput) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[agent_pb2.ExecInput]:
        yield agent_pb2.ExecInput(stdin=b"?")
        await self._left.wait()

    def cancel(self) -> None:
        self.cancelled = True

    def leave(self) -> None:
        self._left.set()

    def end(self) -> None:
        for done in self._done:
            done(self)


class SilentCommand:
    """A command without output that does not end, and may or may not read its input."""

    disconnects = 0
    writing = False

    def __init__(self, reads_input: bool) -> None:
        self._reads_input = reads_input

    async def write(self, data: bytes) -> None:
        self.writing = not self._reads_input
        try:
            await asyncio.sleep(0 if self._reads_input else 3600)
        finally:
            self.writing = False

    async def read(self) -> tuple[int, bytes] | None:
        await asyncio.Event().wait()
        return None

    def disconnect(self) -> None:
        assert not self.writing, "its descriptors must not close while it is written to"
        self.disconnects += 1


@pytest.mark.parametrize("reads_input", [True, False])
@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("last", ["the end of the call", "the agent closes"])
async def test_command_is_disconnected_once_despite_a_second_cancellation(
    turns: int, last: str, reads_input: bool
) -> None:
    call = Call()
    execution: Any = SilentCommand(reads_input)

    async def session_goes_on() -> str:
        return ""

    async def run_command(request: ExecRequest) -> KernelCommand:
        return KernelCommand(execution, session_goes_on)

    stub: Any = SimpleNamespace(Exec=lambda metadata: call)
    serving = asyncio.ensure_future(serve_exec(stub, (), REQUEST, run_command))
    await asyncio.sleep(0.01)
    assert execution.writing is not reads_input
    call.leave()
    if not reads_input:
        call.end()  # a pending write notices it

    for _ in range(turns):
        await asyncio.sleep(0)

    call.end() if last == "the end of the call" else serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert (execution.disconnects, call.cancelled) == (1, True)
