"""A user who leaves is noticed in several ways at once: his command is hung up whatever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.agent.execution.commands import RunningCommand, serve_exec
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2

REQUEST = ExecRequest("r1", "k1", ("tool",), False, True, 0, 0, {})


class Call:
    """Of ``Exec``, as the agent sees it; ``leave`` is what the manager does when its user is gone."""

    def __init__(self) -> None:
        self._left, self._done = asyncio.Event(), list[Callable[[Any], None]]()
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


class Silent:
    """A command that says nothing and does not end, and takes input or not."""

    hung_up, writing = 0, False

    def __init__(self, takes: bool) -> None:
        self._takes = takes

    async def write(self, data: bytes) -> None:
        self.writing = not self._takes
        try:
            await asyncio.sleep(0 if self._takes else 3600)
        finally:
            self.writing = False

    async def read(self) -> tuple[int, bytes] | None:
        await asyncio.Event().wait()
        return None

    def disconnect(self) -> None:
        assert not self.writing, "what it was written to is closed now"
        self.hung_up += 1


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("last", ["the end of the call", "the agent closes"])
async def test_a_command_is_hung_up_also_when_a_second_cancellation_follows(
    turns: int, last: str, takes: bool
) -> None:
    call = Call()
    execution: Any = Silent(takes)

    async def goes_on() -> str:
        return ""

    async def opened(request: ExecRequest) -> RunningCommand:
        return RunningCommand(execution, goes_on)

    stub: Any = SimpleNamespace(Exec=lambda metadata: call)
    serving = asyncio.ensure_future(serve_exec(stub, (), REQUEST, opened))
    await asyncio.sleep(0.01)
    assert execution.writing is not takes
    call.leave()
    if not takes:
        call.end()  # who is writing hears of it so
    for _ in range(turns):
        await asyncio.sleep(0)
    call.end() if last == "the end of the call" else serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert (execution.hung_up, call.cancelled) == (1, True)
