"""SSH in the proxy, on the side of the link: checks logins with the manager, and runs the commands
of channels through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc

from moorage.common.aio.clock import Clock
from moorage.common.link.dial import BROKEN, Dialer, was_revoked
from moorage.common.link.pb import agent_pb2, ssh_pb2, ssh_pb2_grpc
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec
from moorage.common.model.errors import ConfigError, Forbidden, MoorageError
from moorage.proxy.control.feed import CHANNEL_OPTIONS

_ANSWER_S = 10.0
# Commands keep their first connection. After this time, new commands open another one, with the
# current certificate.
_CHANNEL_S = 600.0
# How soon a manager is queried again about a login, and how soon if it does not support the query.
_AGAIN_S = 1.0
_OLDER_S = 60.0
# The most bytes of input in one message.
PIECE_BYTES = 512 * 1024


class ManagerAway(MoorageError):
    """No manager answers."""

    code = "manager-unreachable"


@dataclass(frozen=True, slots=True)
class Proof:
    """The data signed by the client to log in, which managers verify. ``key``: the public key."""

    key: bytes
    signed: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Login:
    """A login: the client's user name, and the fingerprint of its key. ``proof``: None until the
    client has signed."""

    name: str
    fingerprint: str
    address: str
    proof: Proof | None = None


@dataclass(slots=True, eq=False)
class _Shared:
    """A connection to a manager. ``users``: the number of its open calls."""

    channel: grpc.aio.Channel
    target: str
    opened_at: float
    users: int = 0
    current: bool = True


class SshAccess:
    """Access to the manager. ``proxy_id``: this proxy's name on its link."""

    def __init__(self, dialer: Dialer, proxy_id: str, clock: Clock) -> None:
        self._dialer = dialer
        self._proxy_id = proxy_id
        self._clock = clock
        self._shared: _Shared | None = None

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.channel.close()

    async def host_key(self) -> str:
        """Raises ``ManagerAway``."""
        async with self._stub() as stub:
            request = ssh_pb2.SshHostKeyRequest(proxy_id=self._proxy_id)
            key = await _answer(
                stub.HostKey(request, metadata=self._dialer.metadata, timeout=_ANSWER_S)
            )
        return str(key.private_key)

    async def log_in(self, login: Login) -> ssh_pb2.SshTarget:
        """Check a login, and return what it may reach or why it is refused. Raises
        ``ManagerAway``."""
        async with self._stub() as stub:
            call = stub.LogIn(self._login(login), metadata=self._dialer.metadata, timeout=_ANSWER_S)
            target: ssh_pb2.SshTarget = await _answer(call)
        return target

    async def list(self, login: Login, project: str) -> list[str]:
        """List projects, or a project's sessions that have files. Raises ``ManagerAway`` and
        ``Forbidden``."""
        async with self._stub() as stub:
            request = ssh_pb2.SshFolder(login=self._login(login), project=project)
            entries = await _answer(
                stub.List(request, metadata=self._dialer.metadata, timeout=_ANSWER_S)
            )
        if entries.refusal:
            raise Forbidden(entries.refusal)
        return list(entries.names)

    async def until_refused(self, login: Login) -> str:
        """Wait until an accepted login is refused, and return the reason."""
        while True:
            pause_s = _AGAIN_S
            try:
                async with self._stub() as stub:
                    call = stub.Open(metadata=self._dialer.metadata)
                    start = ssh_pb2.SshStart(login=self._login(login), watch=True)
                    try:
                        await _answer(call.write(ssh_pb2.SshInput(start=start)))
                        while (message := await _answer(call.read())) is not grpc.aio.EOF:
                            if message.end.code == "forbidden":
                                return str(message.end.detail)
                            if message.HasField("end"):
                                # a manager of the previous release, which only closes channels
                                pause_s = _OLDER_S
                    finally:
                        call.cancel()
            except ManagerAway as away:
                cause = away.__cause__
                if isinstance(cause, grpc.aio.AioRpcError) and was_revoked(cause):
                    return "the proxy was revoked"

            await asyncio.sleep(pause_s * self._clock.jitter(0.25))

    @asynccontextmanager
    async def open(
        self, login: Login, spec: ExecSpec | None, session: str = ""
    ) -> AsyncIterator[LinkCommand]:
        """Open a command in the login's session, or the file server of ``session``. Leaving the
        context ends it. Raises the manager's refusal, and ``ManagerAway``."""
        async with self._stub() as stub:
            call = stub.Open(metadata=self._dialer.metadata)
            text = "" if spec is None else spec.model_dump_json(exclude_defaults=True)
            start = ssh_pb2.SshStart(login=self._login(login), spec=text, session=session)
            try:
                await _answer(call.write(ssh_pb2.SshInput(start=start)))
                first = await _answer(call.read())
                if first is grpc.aio.EOF:
                    raise ManagerAway(
                        "the manager closed the channel", next_step="try again in a moment"
                    )

                if first.HasField("end"):
                    raise _Refused(first.end)

                yield LinkCommand(call)
            finally:
                call.cancel()

    def _login(self, login: Login) -> ssh_pb2.SshLogin:
        wire = ssh_pb2.SshLogin(
            proxy_id=self._proxy_id,
            login=login.name,
            fingerprint=login.fingerprint,
            address=login.address,
        )
        if (given := login.proof) is not None:
            proof = ssh_pb2.SshProof(key=given.key, signed=given.signed, signature=given.signature)
            wire.proof.CopyFrom(proof)

        return wire

    @asynccontextmanager
    async def _stub(self) -> AsyncIterator[ssh_pb2_grpc.SshAccessStub]:
        shared = await self._connection()
        shared.users += 1
        try:
            yield ssh_pb2_grpc.SshAccessStub(shared.channel)  # type: ignore[no-untyped-call]
        finally:
            shared.users -= 1
            if not shared.current and not shared.users:
                await shared.channel.close()

    async def _connection(self) -> _Shared:
        now = self._clock.monotonic()
        old = self._shared
        target = self._dialer.target
        if old is not None and old.target == target and now - old.opened_at < _CHANNEL_S:
            return old

        try:
            channel = self._dialer.channel(CHANNEL_OPTIONS)
        except ConfigError as error:
            raise ManagerAway(error.message, next_step=error.next_step) from error

        await self._admit(channel)
        old = self._shared  # another call may have connected by now
        self._shared = _Shared(channel, target, now)

        if old is not None:
            old.current = False
            if not old.users:
                await old.channel.close()

        return self._shared

    async def _admit(self, channel: grpc.aio.Channel) -> None:
        try:
            await _answer(self._dialer.admit(channel))
        except BaseException as error:
            await channel.close()
            if isinstance(error, ConfigError):
                raise ManagerAway(error.message, next_step=error.next_step) from error
            raise


class LinkCommand:
    """A command in a session, for ``common.ssh.channels``."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.end: ExecEnd | None = None

    async def send(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            await self._send(agent_pb2.ExecInput(stdin=data[at : at + PIECE_BYTES]))

    async def end_input(self) -> None:
        await self._send(agent_pb2.ExecInput(stdin_ended=True))

    async def resize(self, rows: int, cols: int) -> None:
        await self._send(agent_pb2.ExecInput(size=agent_pb2.TerminalSize(rows=rows, cols=cols)))

    async def _send(self, message: agent_pb2.ExecInput) -> None:
        with suppress(*BROKEN):  # read() will report the error
            await self._call.write(ssh_pb2.SshInput(input=message))

    async def read(self) -> tuple[Channel, bytes] | None:
        """Return the next piece of output, or None at the end. Raises ``ManagerAway`` if the link
        is lost."""
        while self.end is None:
            message = await _answer(self._call.read())
            if message is grpc.aio.EOF:
                raise ManagerAway("the connection to the manager was lost, which ended the command")

            match message.WhichOneof("what"):
                case "stdout":
                    return Channel.STDOUT, message.stdout
                case "stderr":
                    return Channel.STDERR, message.stderr
                case "end":
                    self.end = _end(message.end)

        return None


class _Refused(MoorageError):
    """The manager's refusal."""

    def __init__(self, end: agent_pb2.ExecEnd) -> None:
        super().__init__(end.detail, next_step=end.next_step)


def _end(wire: agent_pb2.ExecEnd) -> ExecEnd:
    code = wire.exit_code if wire.HasField("exit_code") else None
    return ExecEnd(exit_code=code, code=wire.code, detail=wire.detail, next_step=wire.next_step)


async def _answer(call: Any) -> Any:
    try:
        return await call
    except BROKEN as error:
        details = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        raise ManagerAway(
            f"the manager does not answer: {details}", next_step="try again in a moment"
        ) from error
