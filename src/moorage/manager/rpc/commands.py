"""Commands inside sessions: the manager asks down the link, the agent (which cannot be dialled) answers by a
call that lasts as long as the command. Bytes wait for whoever is slow: nothing here gathers."""

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
# Pieces that wait for a slow end, each way; beyond that the other end waits.
WAITING_MAX = 8
_BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)
ALLOWED = (SessionType.INTERACTIVE, SessionType.BATCH)


class RunningCommand:
    """One command, as the side of its user sees it."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.joined, self.left = asyncio.Event(), asyncio.Event()
        self.inputs: Pipe[agent_pb2.ExecInput] = Pipe(WAITING_MAX)
        self.outputs: Pipe[agent_pb2.ExecOutput] = Pipe(WAITING_MAX)
        self.end: ExecEnd | None = None

    async def send(self, data: bytes) -> None:
        await self.inputs.put(agent_pb2.ExecInput(stdin=data))

    async def end_input(self) -> None:
        await self.inputs.put(agent_pb2.ExecInput(stdin_ended=True))

    async def resize(self, size: Size) -> None:
        window = agent_pb2.TerminalSize(rows=size.rows, cols=size.cols)
        await self.inputs.put(agent_pb2.ExecInput(size=window))

    async def read(self) -> tuple[Channel, bytes] | None:
        """The next of what it said; None: it has ended, see ``end``."""
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
        """Whether commands may be run in it now, in whichever of its kernels. Raises ``Conflict``, and
        ``AgentUnreachable`` when none of its agents is there."""
        if session.type not in ALLOWED:
            raise Conflict(
                f"session {session.name!r} is of type {session.type}, and no command may be run in it",
                next_step=f"allowed is {', '.join(ALLOWED)}; `moorage logs {session.name}` shows its log",
            )
        if session.status is not Status.RUNNING:
            raise Conflict(
                f"session {session.name!r} does not run: it is {session.status}",
                next_step=f"`moorage describe {session.name}` says why",
            )
        kernels = _newest(session)
        if not any(self._links.get(kernel.agent_id or "") for kernel in kernels.values()):
            self._kernel(session, next(iter(kernels), MAIN))  # says what is missing

    def _kernel(self, session: SessionView, hostname: str) -> tuple[KernelId, str]:
        """A kernel of the newest attempt, and its agent."""
        kernels = _newest(session)
        if hostname not in kernels:
            raise NotFound(
                f"session {session.name!r} has no kernel {hostname!r}; it has {', '.join(kernels)}"
            )
        kernel = kernels[hostname]
        agent_id = kernel.agent_id or ""
        if self._links.get(agent_id) is None:
            raise AgentUnreachable(
                f"agent {agent_id!r}, where {session.name!r} runs, is not attached to this manager",
                next_step="try again in a moment; `moorage agents` shows who is there",
            )
        return KernelId(kernel.id), agent_id

    @asynccontextmanager
    async def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AsyncIterator[RunningCommand]:
        """Run it; leaving hangs it up. Raises as ``check``, and ``AgentUnreachable`` for no answer."""
        self.check(session)
        kernel_id, agent_id = self._kernel(session, spec.kernel)
        attached = self._links.get(agent_id)
        assert attached is not None
        request = ExecRequest(
            self._clock.new_id(), kernel_id, tuple(spec.command), spec.tty, spec.stdin,
            spec.size.rows, spec.size.cols, spec.env,
        )  # fmt: skip
        conversation = self._open[request.request_id] = RunningCommand(agent_id)
        say = log.bind(session=session.name, session_id=session.id, actor=actor, request=request.request_id)
        # Who ran what, and when, wherever: the arguments may hold secrets, but who audits must see them.
        say.info("command run in a session", command=spec.command, tty=spec.tty, agent=agent_id)
        begun = self._clock.monotonic()
        try:
            attached.ask(request)
            try:
                async with asyncio.timeout(FIRST_ANSWER_S):
                    await conversation.joined.wait()
            except TimeoutError:
                raise AgentUnreachable(
                    f"agent {agent_id!r} did not answer within {FIRST_ANSWER_S:g} s",
                    next_step="an agent of an older version cannot run commands; see its log",
                ) from None
            yield conversation
        finally:
            del self._open[request.request_id]
            conversation.left.set()
            conversation.inputs.close()
            conversation.outputs.close()
            code = conversation.end.exit_code if conversation.end else None
            took_s = round(self._clock.monotonic() - begun, 3)
            say.info("command in a session is over", exit_code=code, took_s=took_s)

    async def serve(self, outputs: AsyncIterator[agent_pb2.ExecOutput], context: Any, caller: Caller) -> None:
        """One call of ``Exec``. Returns, and so ends the call, when its user has left."""
        try:
            first = await anext(outputs)
        except StopAsyncIteration:
            return
        conversation = self._open.get(first.request_id)
        if conversation is None or conversation.joined.is_set():
            return
        if wrong := caller.may_be(conversation.agent_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, wrong)
        conversation.joined.set()
        tasks = (
            spawn(f"exec.read.{first.request_id}", _read(conversation, outputs)),
            spawn(f"exec.left.{first.request_id}", conversation.left.wait()),
            spawn(f"exec.write.{first.request_id}", _write(conversation, context)),
        )
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # First: when the agent has left, its requests end and then this call is cancelled, also here.
            conversation.outputs.close()
            await cancel_and_wait(*tasks)


def _newest(session: SessionView) -> dict[str, KernelView]:
    """The kernels of the newest attempt, by hostname."""
    return {k.hostname: k for k in session.kernels if k.attempt == session.attempt}


async def _read(conversation: RunningCommand, outputs: AsyncIterator[agent_pb2.ExecOutput]) -> None:
    with suppress(*_BROKEN):  # who reads is told by the end of the outputs
        async for message in outputs:
            await conversation.outputs.put(message)
            if message.HasField("end"):
                return


async def _write(conversation: RunningCommand, context: Any) -> None:
    with suppress(*_BROKEN):
        while (message := await conversation.inputs.get()) is not None:
            await context.write(message)


def _end(wire: agent_pb2.ExecEnd) -> ExecEnd:
    code = wire.exit_code if wire.HasField("exit_code") else None
    return ExecEnd(exit_code=code, code=wire.code, detail=wire.detail, next_step=wire.next_step)
