"""The agent's side of a command in a session: between the manager's call and what the runtime started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc
import structlog

from moorage.agent.runtimes.execution import STDERR, Command, Execution
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.model.errors import MoorageError, NotFound

log = structlog.get_logger("moorage.agent.exec")
_BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


@dataclass(frozen=True, slots=True)
class Opened:
    """A command that runs. ``why_over`` says, after its end, what a user should know of its session's end; ""
    where that goes on."""

    execution: Execution
    why_over: Callable[[], Awaitable[str]]


OpenExec = Callable[[ExecRequest], Awaitable[Opened]]


async def refuse(request: ExecRequest) -> Opened:
    """Of agents that run nothing."""
    raise NotFound(f"there is no kernel {request.kernel_id} in which a command could be run")


def command(request: ExecRequest) -> Command:
    return Command(request.command, request.env, request.tty, request.stdin, request.rows, request.cols)


async def serve_exec(
    stub: AgentLinkStub, metadata: Sequence[tuple[str, str]], request: ExecRequest, open_exec: OpenExec
) -> None:
    """One command, from the manager's request to its end. Nothing gathers here: what the command says waits
    until the manager takes it, and what it is told until the command does."""
    call = stub.Exec(metadata=metadata)
    me = asyncio.current_task()
    assert me is not None
    # The user may leave while nothing is to be written, and while the command takes no input.
    call.add_done_callback(lambda _: me.cancel())
    opened: Opened | None = None
    feeding: asyncio.Task[None] | None = None
    try:
        await call.write(agent_pb2.ExecOutput(request_id=request.request_id))
        try:
            opened = await open_exec(request)
            feeding = spawn(f"exec.feed.{request.request_id}", _feed(call, opened.execution, me))
            end = await _carry(call, opened)
        except (MoorageError, OSError) as error:
            end = _failed(error)
        await call.write(agent_pb2.ExecOutput(end=end))
        await call.done_writing()
        await call.code()  # it is over when the manager has read it all
    except _BROKEN:
        pass
    finally:
        call.cancel()
        # In a task of its own: whoever leaves is noticed in more than one way, so the next cancellation may
        # come right here.
        await asyncio.shield(spawn(f"exec.over.{request.request_id}", _hang_up(feeding, opened)))


async def _hang_up(feeding: asyncio.Task[None] | None, opened: Opened | None) -> None:
    """First nobody writes to it any more: its descriptors are closed then, and their numbers anybody's."""
    await cancel_and_wait(feeding)
    if opened is not None:
        opened.execution.disconnect()


async def _carry(
    call: grpc.aio.StreamStreamCall[agent_pb2.ExecOutput, agent_pb2.ExecInput], opened: Opened
) -> agent_pb2.ExecEnd:
    while (said := await opened.execution.read()) is not None:
        channel, data = said
        if channel == STDERR:
            await call.write(agent_pb2.ExecOutput(stderr=data))
        else:
            await call.write(agent_pb2.ExecOutput(stdout=data))
    code = await opened.execution.wait()
    over = await opened.why_over()
    return agent_pb2.ExecEnd(exit_code=code, code="session-ended" if over else "", detail=over)


async def _feed(
    call: grpc.aio.StreamStreamCall[agent_pb2.ExecOutput, agent_pb2.ExecInput],
    execution: Execution,
    whole: asyncio.Task[None],
) -> None:
    try:
        async for message in call:
            match message.WhichOneof("what"):
                case "stdin":
                    await execution.write(message.stdin)
                case "stdin_ended":
                    await execution.end_input()
                case "size":
                    await execution.resize(message.size.rows, message.size.cols)
    except _BROKEN:
        pass
    whole.cancel()  # the manager ended the call: nobody listens


def _failed(error: MoorageError | OSError) -> agent_pb2.ExecEnd:
    if isinstance(error, MoorageError):
        return agent_pb2.ExecEnd(code=error.code, detail=error.message, next_step=error.next_step)
    return agent_pb2.ExecEnd(code="exec-failed", detail=str(error))
