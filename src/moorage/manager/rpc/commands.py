"""Broker for commands in sessions. The manager sends a request down the link, and the agent, which cannot be
dialed, answers with a call that lasts as long as the command. A slow reader slows the writer down; nothing is
buffered beyond a few chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.pipe import Pipe
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.cluster import MAIN
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec, Size
from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound
from moorage.common.model.ids import KernelId
from moorage.common.model.status import SessionType, Status
from moorage.common.views.resources import KernelView, SessionView
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import Caller

log = structlog.get_logger("moorage.exec")

FIRST_ANSWER_S = 10.0
# Chunks buffered for a slow reader, per direction; beyond that the writer waits.
BUFFERED_CHUNKS = 8
_BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)
ALLOWED = (SessionType.INTERACTIVE, SessionType.BATCH)


class RunningCommand:
    """One command, as seen by the user's side."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.connected, self.closed = asyncio.Event(), asyncio.Event()
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
        """The next chunk of output; None after the end, see ``end``."""
        while (message := await self.outputs.get()) is not None:
            match message.WhichOneof("what"):
                case "stdout":
                    return Channel.STDOUT, message.stdout
                case "stderr":
                    return Channel.STDERR, message.stderr
                case "end":
                    self.end = _end(message.end)
                    return None
        return None


class CommandBroker:
    def __init__(self, links: AgentLinks, clock: Clock) -> None:
        self._links, self._clock = links, clock
        self._open: dict[str, RunningCommand] = {}

    def check(self, session: SessionView) -> None:
        """Check that some kernel of the session can run commands now. Raises ``Conflict``, or
        ``AgentUnreachable`` if none of its agents is connected."""
        if session.type not in ALLOWED:
            raise Conflict(
                f"sessions of type {session.type} cannot run commands; session {session.name!r} is one",
                next_step=f"supported: {', '.join(ALLOWED)}; `moorage logs {session.name}` shows its log",
            )
        if session.status is not Status.RUNNING:
            raise Conflict(
                f"session {session.name!r} is not running: it is {session.status}",
                next_step=f"`moorage describe {session.name}` shows the reason",
            )
        kernels = _newest(session)
        if not any(self._links.get(kernel.agent_id or "") for kernel in kernels.values()):
            self._kernel(session, next(iter(kernels), MAIN))  # raises the error that names the agent

    def _kernel(self, session: SessionView, hostname: str) -> tuple[KernelId, str]:
        """The id of a kernel of the newest attempt, and its agent."""
        kernels = _newest(session)
        if hostname not in kernels:
            raise NotFound(
                f"session {session.name!r} has no kernel {hostname!r}; it has {', '.join(kernels)}"
            )
        kernel = kernels[hostname]
        agent_id = kernel.agent_id or ""
        if self._links.get(agent_id) is None:
            raise AgentUnreachable(
                f"agent {agent_id!r}, where {session.name!r} runs, is not connected to this manager",
                next_step="try again in a moment; `moorage agents` lists the connected agents",
            )
        return KernelId(kernel.id), agent_id

    @asynccontextmanager
    async def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AsyncIterator[RunningCommand]:
        """Run a command; leaving the context terminates it. Raises the errors of ``check``, and
        ``AgentUnreachable`` if the agent does not respond."""
        self.check(session)
        kernel_id, agent_id = self._kernel(session, spec.kernel)
        stream = self._links.get(agent_id)
        assert stream is not None
        request = ExecRequest(
            self._clock.new_id(), kernel_id, tuple(spec.command), spec.tty, spec.stdin,
            spec.size.rows, spec.size.cols, spec.env,
        )  # fmt: skip
        command = self._open[request.request_id] = RunningCommand(agent_id)
        audit_log = log.bind(
            session=session.name, session_id=session.id, actor=actor, request=request.request_id
        )
        # Audit record. Arguments may contain secrets, but an auditor must see them.
        audit_log.info("command started", command=spec.command, tty=spec.tty, agent=agent_id)
        started_at = self._clock.monotonic()
        try:
            stream.send_request(request)
            try:
                async with asyncio.timeout(FIRST_ANSWER_S):
                    await command.connected.wait()
            except TimeoutError:
                raise AgentUnreachable(
                    f"agent {agent_id!r} did not respond within {FIRST_ANSWER_S:g} s",
                    next_step="read the agent's log; older versions of the agent cannot run commands",
                ) from None
            yield command
        finally:
            del self._open[request.request_id]
            command.closed.set()
            command.inputs.close()
            command.outputs.close()
            code = command.end.exit_code if command.end else None
            took_s = round(self._clock.monotonic() - started_at, 3)
            audit_log.info("command ended", exit_code=code, took_s=took_s)

    async def serve(self, outputs: AsyncIterator[agent_pb2.ExecOutput], context: Any, caller: Caller) -> None:
        """One call of ``Exec``. Returns, and so ends the call, when the user disconnects."""
        try:
            first = await anext(outputs)
        except StopAsyncIteration:
            return
        command = self._open.get(first.request_id)
        if command is None or command.connected.is_set():
            return
        if wrong := caller.refusal_to_act_as(command.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        command.connected.set()
        tasks = (
            spawn(f"exec.read.{first.request_id}", _read(command, outputs)),
            spawn(f"exec.closed.{first.request_id}", command.closed.wait()),
            spawn(f"exec.write.{first.request_id}", _write(command, context)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Close first: when the agent disconnects, its stream ends and this call is cancelled, possibly
            # here.
            command.outputs.close()
            await cancel_and_wait(*tasks)


def _newest(session: SessionView) -> dict[str, KernelView]:
    """The kernels of the newest attempt, by hostname."""
    return {k.hostname: k for k in session.kernels if k.attempt == session.attempt}


async def _read(command: RunningCommand, outputs: AsyncIterator[agent_pb2.ExecOutput]) -> None:
    with suppress(*_BROKEN):  # the reader sees the end of the outputs
        async for message in outputs:
            await command.outputs.put(message)
            if message.HasField("end"):
                return


async def _write(command: RunningCommand, context: Any) -> None:
    with suppress(*_BROKEN):
        while (message := await command.inputs.get()) is not None:
            await context.write(message)


def _end(wire: agent_pb2.ExecEnd) -> ExecEnd:
    code = wire.exit_code if wire.HasField("exit_code") else None
    return ExecEnd(exit_code=code, code=wire.code, detail=wire.detail, next_step=wire.next_step)
