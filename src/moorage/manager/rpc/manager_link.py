"""Manager link: requests to agents that are connected to another manager of the same database.

The brokers of a manager use it. The called manager uses only its own agent links, so that a request
is forwarded at most once. Managers authenticate each other by their certificates, or, where links
have no TLS, by the link token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link import codec
from moorage.common.link.dial import BROKEN
from moorage.common.link.identity import MANAGER_NAME
from moorage.common.link.local import proven_target
from moorage.common.link.messages import ExecRequest, LogRequest, WorkspaceRequest
from moorage.common.link.pb import agent_pb2, managers_pb2
from moorage.common.link.pb.managers_pb2_grpc import ManagerLinkStub
from moorage.common.model.errors import AgentUnreachable, ConfigError, StartupError
from moorage.manager.pki.registration import ManagerCertificate
from moorage.manager.rpc.running_command import RelayedCommand
from moorage.manager.store import Store
from moorage.manager.store.platform.managers import DatabaseIdentity, ManagerRow

# Longer than an agent may take to answer the called manager.
_ANSWER_S = 12.0
_IDENTIFY_S = 2.0
OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


class ManagerLinkClient:
    """``certificate``: this manager's certificate; None means that links have no TLS, and ``token``
    authenticates. ``home``: the state directory that managers on this host must then have; None
    means that any listener is accepted."""

    def __init__(
        self,
        store: Store,
        certificate: ManagerCertificate | None,
        token: str,
        home: Path | None = None,
    ) -> None:
        self._store = store
        self._certificate = certificate
        self._home = home
        self._metadata = () if certificate else (("authorization", f"Bearer {token}"),)

    async def manager_of(self, agent_id: str) -> ManagerRow:
        """Find the other manager to which the agent is connected. Raises ``AgentUnreachable``."""
        found = await self._store.managers.of_agent(agent_id)
        if found is None or found.id == self._store.managers.own_id:
            raise AgentUnreachable(
                f"agent {agent_id!r} is not connected to a manager",
                next_step=(
                    "try again in a moment; `moorage agents` shows which agents are connected"
                ),
            )

        return found

    async def read_log(
        self, agent_id: str, request: LogRequest
    ) -> AsyncGenerator[agent_pb2.LogChunk, None]:
        """Read the log of a kernel, as its agent sends it. Raises ``AgentUnreachable``."""
        manager = await self.manager_of(agent_id)
        async with self._stub(manager) as stub:
            call = stub.ReadLog(_request(agent_id, request), metadata=self._metadata)
            try:
                async for chunk in call:
                    yield chunk
            except grpc.aio.AioRpcError as error:
                raise _unreachable(agent_id, manager, error) from error
            finally:
                call.cancel()

    @asynccontextmanager
    async def run_command(
        self, agent_id: str, request: ExecRequest
    ) -> AsyncIterator[RelayedCommand]:
        """Run a command on the agent; leaving the context disconnects it. Raises
        ``AgentUnreachable``."""
        manager = await self.manager_of(agent_id)
        command = RelayedCommand(agent_id)
        async with self._stub(manager) as stub:
            call = stub.RunCommand(metadata=self._metadata)
            tasks: list[asyncio.Task[None]] = []
            try:
                await self._start(call, agent_id, request, manager)
                reading = command.take_outputs(_outputs(call))
                writing = command.pass_inputs(
                    lambda message: call.write(managers_pb2.CommandInput(input=message))
                )
                tasks += [spawn(f"manager-link.read.{request.request_id}", reading)]
                tasks += [spawn(f"manager-link.write.{request.request_id}", writing)]
                yield command
            finally:
                command.close()
                await cancel_and_wait(*tasks)
                call.cancel()

    async def _start(
        self, call: Any, agent_id: str, request: ExecRequest, manager: ManagerRow
    ) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await call.write(managers_pb2.CommandInput(start=_request(agent_id, request)))
                await call.read()  # the agent runs it
        except BROKEN as error:
            raise _unreachable(agent_id, manager, error) from error
        except TimeoutError:
            raise AgentUnreachable(f"manager {manager.link} did not respond") from None

    async def ask_workspaces(
        self, request: WorkspaceRequest, timeout_s: float
    ) -> dict[str, agent_pb2.WorkspaceAnswer | None]:
        """Answers from the agents of all other managers, with None for an agent that did not
        respond."""
        managers = await self._store.managers.all()
        others = [row for row in managers if row.id != self._store.managers.own_id and row.agents]
        found = await asyncio.gather(
            *(self._ask_workspaces(row, request, timeout_s) for row in others)
        )

        return {agent_id: answer for answers in found for agent_id, answer in answers.items()}

    async def _ask_workspaces(
        self, manager: ManagerRow, request: WorkspaceRequest, timeout_s: float
    ) -> dict[str, agent_pb2.WorkspaceAnswer | None]:
        try:
            async with self._stub(manager) as stub:
                found = await stub.AskWorkspaces(
                    _request("", request), metadata=self._metadata, timeout=timeout_s
                )
        except (grpc.aio.AioRpcError, AgentUnreachable):
            return dict.fromkeys(manager.agents)

        return {
            agent.agent_id: agent.answer if agent.HasField("answer") else None
            for agent in found.agents
        }

    async def refuse_other_databases(self) -> None:
        """Raise ``StartupError`` if a manager listed in the database uses another copy of it.

        Managers that do not answer, or run the previous release, do not prevent startup."""
        own = await self._store.managers.identity()
        managers = await self._store.managers.all()
        others = [row for row in managers if row.id != self._store.managers.own_id]

        for row, found in zip(
            others, await asyncio.gather(*map(self._identify, others)), strict=True
        ):
            if found is not None and (problem := find_conflict(own, found, row.link)):
                raise StartupError(
                    problem,
                    next_step="stop every manager of the database that you no longer need",
                )

    async def _identify(self, manager: ManagerRow) -> DatabaseIdentity | None:
        try:
            async with self._stub(manager) as stub:
                found = await stub.Identify(
                    managers_pb2.IdentifyRequest(), metadata=self._metadata, timeout=_IDENTIFY_S
                )
        except (grpc.aio.AioRpcError, AgentUnreachable):
            return None
        return DatabaseIdentity(found.installation, found.copy, found.system, found.timeline)

    @asynccontextmanager
    async def _stub(self, manager: ManagerRow) -> AsyncIterator[ManagerLinkStub]:
        """Open a separate connection for each request: requests are rare, and certificates change.

        Raises ``AgentUnreachable`` for a manager that does not prove its identity."""
        try:
            opened = self._channel(manager.link)
        except ConfigError as error:
            raise AgentUnreachable(error.message, next_step=error.next_step) from error
        async with opened as channel:
            yield ManagerLinkStub(channel)  # type: ignore[no-untyped-call]

    def _channel(self, target: str) -> grpc.aio.Channel:
        if self._certificate is None:
            if self._home is not None:
                target = proven_target(self._home, target)
            return grpc.aio.insecure_channel(target, options=OPTIONS)

        key, chain = self._certificate.current()
        credentials = grpc.ssl_channel_credentials(
            self._certificate.authorities.encode(), key.encode(), chain.encode()
        )
        named = ("grpc.ssl_target_name_override", MANAGER_NAME)
        return grpc.aio.secure_channel(target, credentials, options=[*OPTIONS, named])


def find_conflict(own: DatabaseIdentity, other: DatabaseIdentity, link: str) -> str:
    """Explain why a manager must not start on its own database while the manager at ``link`` uses
    another copy, or return "" if it may start.

    Agents and proxies would get orders from both."""
    if own.installation != other.installation:
        return ""

    if own.copy != other.copy:
        return (
            f"the manager at {link} runs on another copy of this database: one of the two was "
            "restored from "
            "a backup"
        )

    if own.system == other.system and own.timeline < other.timeline:
        return (
            f"this Postgres is a former primary on timeline {own.timeline}: the manager at {link} "
            "uses the "
            f"primary, on timeline {other.timeline}"
        )

    return ""


def _request(
    agent_id: str, request: LogRequest | ExecRequest | WorkspaceRequest
) -> managers_pb2.AgentRequest:
    return managers_pb2.AgentRequest(
        agent_id=agent_id, message=codec.manager_message_to_wire(request)
    )


async def _outputs(call: Any) -> AsyncIterator[agent_pb2.ExecOutput]:
    while (message := await call.read()) is not grpc.aio.EOF:
        yield message


def _unreachable(agent_id: str, manager: ManagerRow, error: BaseException) -> AgentUnreachable:
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
    return AgentUnreachable(
        f"agent {agent_id!r} cannot be reached through manager {manager.link}: {details}",
        next_step=(
            "try again in a moment; managers must be able to reach each other at "
            "manager.link_address"
        ),
    )
