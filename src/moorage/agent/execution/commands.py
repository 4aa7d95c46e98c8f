"""Command execution in sessions: relays one command between the manager's ``Exec`` call and the
runtime.

Nothing is buffered here. Output waits until the manager has read it, and input until the command
has read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc
import structlog

from moorage.agent.execution.code.kernel import CodePlace
from moorage.agent.execution.code.service import CodeService
from moorage.agent.execution.file_server import serve_files
from moorage.agent.runtimes import Handle, Runtime
from moorage.agent.runtimes.base import BatchRuntime
from moorage.agent.runtimes.execution import STDERR, Command, Copy, ExecFailed, Execution
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.dial import BROKEN
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.model.errors import Conflict, MoorageError, NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.sftp import SFTP

log = structlog.get_logger("moorage.agent.execution")
_ExecCall = grpc.aio.StreamStreamCall[agent_pb2.ExecOutput, agent_pb2.ExecInput]


@dataclass(frozen=True, slots=True)
class KernelCommand:
    """A command in a kernel. ``session_end`` is called after the command has ended. It returns a
    message for the user if the session has also ended, or "" otherwise."""

    execution: Execution
    session_end: Callable[[], Awaitable[str]]


RunCommand = Callable[[ExecRequest], Awaitable[KernelCommand]]


@dataclass(frozen=True, slots=True)
class LiveKernel:
    """A running kernel. ``folder``: the directory on this node where its commands start, or None.
    ``is_ending``: whether it is ending or has ended."""

    runtime: Runtime
    handle: Handle
    folder: Path | None
    is_ending: Callable[[], Awaitable[bool]]


class Commands:
    """A service that runs the manager's commands in kernels and answers its requests about code.
    ``find`` raises ``NotFound`` and ``Conflict``."""

    def __init__(
        self,
        find: Callable[[KernelId], LiveKernel],
        code: CodeService,
        kept: Callable[[SessionId], Path | None],
    ) -> None:
        self._find = find
        self._code = code
        self._kept = kept

    async def run(self, request: ExecRequest) -> KernelCommand:
        """Run a command. Raises the errors of ``find`` and ``Runtime.exec``."""
        if request.files == SFTP:
            return KernelCommand(await serve_files(self._folder(request)), _goes_on)

        kernel = self._find(request.kernel_id)
        if request.code:
            return KernelCommand(await self._code.answer(request.kernel_id, request.code), _goes_on)

        execution = await _start(kernel, request)

        async def session_end() -> str:
            return (
                "the session has ended, and the command with it" if await kernel.is_ending() else ""
            )

        return KernelCommand(execution, session_end)

    def _folder(self, request: ExecRequest) -> Path:
        """The folder with a session's files on this node: the kernel's folder while it runs,
        otherwise the kept workspace. Raises ``ExecFailed``."""
        folder = None
        with suppress(NotFound, Conflict):
            folder = self._find(request.kernel_id).folder

        folder = folder or self._kept(SessionId(request.path))
        if folder is None:
            raise ExecFailed(
                "the session has no files on this node",
                next_step=(
                    "start it with `--workspace drop` or keep, to have files outside its image"
                ),
            )

        return folder


async def _start(kernel: LiveKernel, request: ExecRequest) -> Execution:
    if request.files and kernel.runtime.capabilities.files:
        copy = Copy(request.files == "in", request.path, request.name)
        return await cast(BatchRuntime, kernel.runtime).copy(kernel.handle, copy)
    return await kernel.runtime.exec(kernel.handle, to_command(request))


async def _goes_on() -> str:
    return ""


def code_place(kernel: LiveKernel) -> CodePlace:
    """Where a kernel's code runs. Raises ``ExecFailed`` if the kernel's runtime cannot run code
    kernels."""
    if not kernel.runtime.capabilities.code:
        raise ExecFailed(
            f"the runtime {kernel.runtime.name} cannot run code kernels",
            next_step="run a program with `moorage exec`, or use another runtime",
        )

    if kernel.folder is None:
        raise ExecFailed(
            "code kernels need a workspace, and this session has none",
            next_step="start it with `--workspace drop` or keep",
        )

    return CodePlace(lambda command: kernel.runtime.exec(kernel.handle, command), kernel.folder)


async def no_commands(request: ExecRequest) -> KernelCommand:
    """A ``RunCommand`` for agents that cannot run commands."""
    raise NotFound(f"this agent has no kernel {request.kernel_id}")


def to_command(request: ExecRequest) -> Command:
    return Command(
        request.command,
        request.env,
        tty=request.tty,
        stdin=request.stdin,
        rows=request.rows,
        cols=request.cols,
    )


async def serve_exec(
    stub: AgentLinkStub,
    metadata: Sequence[tuple[str, str]],
    request: ExecRequest,
    run_command: RunCommand,
) -> None:
    """Run one command, from the manager's request to its end."""
    call = stub.Exec(metadata=metadata)
    current = asyncio.current_task()
    assert current is not None

    # If no read or write is pending, nothing else notices that the user has disconnected.
    call.add_done_callback(lambda _: current.cancel())
    command: KernelCommand | None = None
    forwarding: asyncio.Task[None] | None = None
    try:
        await call.write(agent_pb2.ExecOutput(request_id=request.request_id))
        try:
            command = await run_command(request)
            forwarding = spawn(
                f"exec.input.{request.request_id}", _forward_input(call, command.execution, current)
            )
            end = await _forward_output(call, command)
        except (MoorageError, OSError) as error:
            end = _failure(error)

        await call.write(agent_pb2.ExecOutput(end=end))
        await call.done_writing()
        await call.code()  # returns when the manager has read everything
    except BROKEN:
        pass
    finally:
        call.cancel()
        # This runs in a separate task because several signals report a disconnect, so another
        # cancellation may arrive during the cleanup.
        await asyncio.shield(
            spawn(f"exec.close.{request.request_id}", _disconnect(forwarding, command))
        )


async def _disconnect(forwarding: asyncio.Task[None] | None, command: KernelCommand | None) -> None:
    """Stop writing to the command before its descriptors are closed, because their numbers may be
    reused immediately."""
    await cancel_and_wait(forwarding)
    if command is not None:
        command.execution.disconnect()


async def _forward_output(call: _ExecCall, command: KernelCommand) -> agent_pb2.ExecEnd:
    while (output := await command.execution.read()) is not None:
        channel, data = output
        if channel == STDERR:
            await call.write(agent_pb2.ExecOutput(stderr=data))
        else:
            await call.write(agent_pb2.ExecOutput(stdout=data))

    exit_code = await command.execution.wait()
    session_end = await command.session_end()
    return agent_pb2.ExecEnd(
        exit_code=exit_code, code="session-ended" if session_end else "", detail=session_end
    )


async def _forward_input(
    call: _ExecCall, execution: Execution, serving: asyncio.Task[None]
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
    except BROKEN:
        pass

    serving.cancel()  # the manager ended the call


def _failure(error: MoorageError | OSError) -> agent_pb2.ExecEnd:
    if isinstance(error, MoorageError):
        return agent_pb2.ExecEnd(code=error.code, detail=error.message, next_step=error.next_step)
    return agent_pb2.ExecEnd(code="exec-failed", detail=str(error))
