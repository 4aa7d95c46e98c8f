"""Broker for commands in sessions. The manager sends a request down the link, and the agent, which
cannot be dialed, answers with a call that lasts as long as the command. If the agent is connected
to another manager, the request goes to that manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from typing import Any

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.code_runs import PROGRAM
from moorage.common.model.commands import ExecSpec
from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound
from moorage.common.model.ids import KernelId
from moorage.common.model.status import SessionType, Status
from moorage.common.sftp import SFTP
from moorage.common.views.resources import KernelView, SessionView
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.causes import state_of
from moorage.manager.rpc.manager_link import ManagerLinkClient
from moorage.manager.rpc.running_command import RelayedCommand

log = structlog.get_logger("moorage.exec")

FIRST_ANSWER_S = 10.0
_LAST_WRITE_S = 2.0
FIRST_KERNEL = "main1"
# An agent from the previous release runs this instead of a file server.
_TOO_OLD = ("sh", "-c", "echo 'moorage: the agent of this node is too old for SFTP' >&2; exit 1")
ALLOWED = (SessionType.INTERACTIVE, SessionType.BATCH, SessionType.SYSTEM)
# A job that is waiting in a site's queue already has its directory.
_WITH_FILES = (Status.RUNNING, Status.QUEUED)


class CommandBroker:
    """``using``: context that is entered with a session's id while a command runs in the
    session."""

    def __init__(
        self,
        links: AgentLinks,
        managers: ManagerLinkClient,
        clock: Clock,
        using: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self._links = links
        self._managers = managers
        self._clock = clock
        self._using = using
        self._open: dict[str, RelayedCommand] = {}

    async def check(self, session: SessionView, *, files: bool = True) -> None:
        """Check that a kernel of the session can currently run commands, or at least copy
        ``files``. Raises ``Conflict``, or ``AgentUnreachable`` if none of its agents is
        connected."""
        if session.type not in ALLOWED:
            raise Conflict(
                f"sessions of type {session.type} cannot run commands; session {session.name!r} "
                "has this type",
                next_step=(
                    f"supported: {', '.join(ALLOWED)}; `moorage logs {session.name}` shows its log"
                ),
            )

        if session.status not in (_WITH_FILES if files else (Status.RUNNING,)):
            raise Conflict(
                f"session {session.name!r} is not running: it is {state_of(session)}",
                next_step=f"`moorage describe {session.name}` shows the reason",
            )

        agents = [kernel.agent_id or "" for kernel in _newest(session).values()]
        if any(self._links.get(agent_id) for agent_id in agents):
            return

        for number, agent_id in enumerate(agents, start=1):
            try:
                await self._managers.manager_of(agent_id)
                return
            except AgentUnreachable:
                if number == len(agents):
                    raise

    @asynccontextmanager
    async def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AsyncIterator[RelayedCommand]:
        """Run a command; leaving the context terminates it. Raises the errors of ``check``, and
        ``AgentUnreachable`` if the agent does not respond."""
        await self.check(session, files=spec.files is not None)
        kernel = _kernel_of(session, spec.kernel)
        agent_id = kernel.agent_id or ""
        request = ExecRequest(
            self._clock.new_id(),
            KernelId(kernel.id),
            command=tuple(spec.command),
            tty=spec.tty,
            stdin=spec.stdin,
            rows=spec.size.rows,
            cols=spec.size.cols,
            env=spec.env,
        )
        if (files := spec.files) is not None:
            request = replace(request, files=files.direction, path=files.path, name=files.name)

        audit_log = log.bind(
            session=session.name, session_id=session.id, actor=actor, request=request.request_id
        )
        # Audit record. Arguments may contain secrets, but an auditor must see them.
        audit_log.info("command started", command=spec.command, tty=spec.tty, agent=agent_id)
        started_at = self._clock.monotonic()
        code = None
        try:
            async with self._run(session.id, agent_id, request) as command:
                try:
                    yield command
                finally:
                    code = command.end.exit_code if command.end else None
        finally:
            took_s = round(self._clock.monotonic() - started_at, 3)
            audit_log.info("command ended", exit_code=code, took_s=took_s)

    def open_files(self, session: SessionView) -> AbstractAsyncContextManager[RelayedCommand]:
        """Open an SFTP server for the session's files on the node of its first kernel.

        Raises ``Conflict``."""
        kernel = _kernel_of(session, FIRST_KERNEL)
        if session.type not in ALLOWED or not has_files(session) or kernel.agent_id is None:
            raise Conflict(
                f"session {session.name!r} is {state_of(session)}; its files were not kept",
                next_step="start it with `--workspace keep`",
            )

        request = ExecRequest(
            *(self._clock.new_id(), KernelId(kernel.id), _TOO_OLD),
            stdin=True,
            files=SFTP,
            path=session.id,
        )
        return self._run(session.id, kernel.agent_id, request)

    def ask(
        self, session: SessionView, hostname: str, code: str
    ) -> AbstractAsyncContextManager[RelayedCommand]:
        """Send a request about code runs. The agent's answer is read like a command's output.

        Raises ``NotFound``, ``AgentUnreachable``."""
        kernel = _kernel_of(session, hostname)
        request = ExecRequest(self._clock.new_id(), KernelId(kernel.id), (PROGRAM,), code=code)
        return self._run(session.id, kernel.agent_id or "", request)

    @asynccontextmanager
    async def _run(
        self, session_id: str, agent_id: str, request: ExecRequest
    ) -> AsyncIterator[RelayedCommand]:
        run = self.run_here if self._links.get(agent_id) else self._managers.run_command
        with self._using(session_id):
            async with run(agent_id, request) as command:
                yield command

    @asynccontextmanager
    async def run_here(self, agent_id: str, request: ExecRequest) -> AsyncIterator[RelayedCommand]:
        """Like ``open``, for an agent that is connected to this manager. Raises
        ``AgentUnreachable``."""
        stream = self._links.get(agent_id)
        if stream is None:
            raise AgentUnreachable(f"agent {agent_id!r} is not connected to this manager")

        command = self._open[request.request_id] = RelayedCommand(agent_id)
        try:
            stream.send_request(request)
            try:
                async with asyncio.timeout(FIRST_ANSWER_S):
                    await command.connected.wait()
            except TimeoutError:
                raise AgentUnreachable(
                    f"agent {agent_id!r} did not respond within {FIRST_ANSWER_S:g} s",
                    next_step=(
                        "read the agent's log; older versions of the agent cannot run commands"
                    ),
                ) from None

            yield command
        finally:
            del self._open[request.request_id]
            command.close()

    async def serve(
        self, outputs: AsyncIterator[agent_pb2.ExecOutput], context: Any, caller: LinkCaller
    ) -> None:
        """Serve one call of ``Exec``. Returns when the user disconnects, which ends the call."""
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
            spawn(f"exec.read.{first.request_id}", command.take_outputs(outputs)),
            spawn(f"exec.closed.{first.request_id}", command.closed.wait()),
            spawn(f"exec.write.{first.request_id}", command.pass_inputs(context.write)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Close first: when the agent disconnects, its stream ends and this call is cancelled,
            # possibly at this point.
            command.outputs.close()
            # gRPC cannot end a call while a message is being written, even for a cancelled task.
            command.inputs.close()
            await asyncio.wait(tasks[2:], timeout=_LAST_WRITE_S)
            await cancel_and_wait(*tasks)


def has_files(session: SessionView) -> bool:
    """Whether its node has, or may have, files of the session."""
    return session.status is Status.RUNNING or session.spec.workspace == "keep"


def _kernel_of(session: SessionView, hostname: str) -> KernelView:
    kernels = _newest(session)
    if hostname not in kernels:
        raise NotFound(
            f"session {session.name!r} has no kernel {hostname!r}; it has {', '.join(kernels)}"
        )
    return kernels[hostname]


def _newest(session: SessionView) -> dict[str, KernelView]:
    """Kernels of the newest attempt, by hostname."""
    return {k.hostname: k for k in session.kernels if k.attempt == session.attempt}
