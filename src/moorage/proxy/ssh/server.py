"""The proxy's SSH server: OpenSSH's clients log in with their users' registered keys, and each
channel is a command in a session, run in the same way as by ``moorage exec``.

The proxy verifies that the client holds the key, and the manager verifies it again with the data
signed by the client. The manager decides what the user may do, at login and again for every
channel, and reports when the login is no longer valid.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter as Counts
from contextlib import suppress
from dataclasses import replace

import asyncssh
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.config.ssh_settings import SshSettings
from moorage.common.link.pb import ssh_pb2
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import MoorageError
from moorage.common.model.public_keys import fingerprint_of
from moorage.common.sftp.memory import keep_freed_blocks
from moorage.common.ssh.channels import MAX_CHANNELS, Channels, Start
from moorage.proxy.control.ssh_access import Login, Proof, SshAccess
from moorage.proxy.ssh.files import FilesChannel, UserTree
from moorage.proxy.ssh.metrics import SshMetrics

log = structlog.get_logger("moorage.proxy.ssh")

# Like `MaxAuthTries` of sshd.
MAX_TRIES = 6
_RETRY_S = 2.0
# The silence after which a client is probed, and the number of probes before it is considered gone.
_KEEPALIVE_S = 30
_KEEPALIVES = 4
# How long a connection's channels have to report why they were closed before the connection ends.
_FAREWELL_S = 0.5
_BANNER = "Moorage"


class SshFrontend:
    """The listener on ``proxy.ssh_listen``, as an async context manager. Entering raises
    ``OSError`` if the address is taken. Clients are refused until a manager has provided the host
    key."""

    def __init__(
        self,
        settings: SshSettings,
        access: SshAccess,
        metrics: SshMetrics,
        *,
        clock: Clock,
        reuses_port: bool = False,
    ) -> None:
        assert settings.ssh_listen is not None
        self.address = split_address(settings.ssh_listen)
        self._settings = settings
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._reuses_port = reuses_port
        self._socket: socket.socket | None = None
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._loop = Loop("proxy.ssh", self._listen, interval_s=_RETRY_S, clock=clock)
        self._connections: set[SshConnection] = set()
        self._notes: set[asyncio.Task[None]] = set()
        self._anonymous: Counts[str] = Counts()  # connections without a login, by address
        metrics.connections.set_function(lambda: len(self._connections))

    async def __aenter__(self) -> SshFrontend:
        keep_freed_blocks()
        host, port = self.address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server(
            (host, port), family=family, backlog=128, reuse_port=self._reuses_port
        )
        self.address = self._socket.getsockname()[:2]
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop.__aexit__(*exc)
        if self._acceptor is not None:
            self._acceptor.close()
        if self._socket is not None:
            self._socket.close()
        for server in list(self._connections):
            await server.close()
        await cancel_and_wait(*self._notes)
        await self._access.close()

    async def _listen(self) -> None:
        """Listen once a manager has provided the host key."""
        if self._acceptor is not None:
            return

        try:
            key = asyncssh.import_private_key(await self._access.host_key())
        except MoorageError as error:
            log.warning("no manager has provided the SSH host key yet", why=error.message)
            return

        self._acceptor = await asyncssh.create_server(
            lambda: SshConnection(self),
            sock=self._socket,
            server_host_keys=[key],
            encoding=None,
            compression_algs=["none"],
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            server_version=_BANNER,
            login_timeout=self._settings.ssh_login_timeout_s,
            keepalive_interval=_KEEPALIVE_S,
            keepalive_count_max=_KEEPALIVES,
        )
        log.info(
            "ssh is listening", address="{}:{}".format(*self.address), key=key.get_fingerprint()
        )

    def admit(self, server: SshConnection, address: str) -> str:
        """Count a new connection. Returns the reason if there is no room for it."""
        settings = self._settings
        if len(self._connections) >= settings.ssh_max_connections:
            return "too many connections"
        if self._anonymous[address] >= settings.ssh_max_logins_per_address:
            return "too many logins in progress from this address"
        self._connections.add(server)
        self._anonymous[address] += 1
        return ""

    def identified(self, address: str) -> None:
        """Record that a connection from this address has logged in, or has ended without logging
        in."""
        self._anonymous[address] -= 1
        if self._anonymous[address] <= 0:
            del self._anonymous[address]

    def left(self, server: SshConnection) -> None:
        self._connections.discard(server)

    async def look_up(self, login: Login) -> ssh_pb2.SshTarget | None:
        """The target of a login, or None."""
        try:
            target = await self._access.log_in(login)
        except MoorageError as error:
            log.warning("an SSH login could not be checked", why=error.message)
            self._metrics.logins.labels("error").inc()
            return None
        return None if target.refusal else target

    def note(self, login: Login) -> None:
        """Report a successful login to the manager, for its log."""

        async def tell() -> None:
            with suppress(MoorageError):  # each channel proves the login again
                await self._access.log_in(login)

        task = spawn("ssh.login", tell())
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def until_refused(self, login: Login) -> str:
        return await self._access.until_refused(login)

    def count(self, outcome: str) -> None:
        self._metrics.logins.labels(outcome).inc()

    def tree(self, login: Login) -> UserTree:
        return UserTree(self._access, login, self._clock, self._metrics.files.inc)

    def start(self, login: Login) -> Start:
        return lambda spec: self._access.open(login, spec)


class SshConnection(asyncssh.SSHServer):
    """One client connection. ``_login`` and ``_target`` belong to the last verified key, which
    completes the login."""

    def __init__(self, frontend: SshFrontend) -> None:
        self._frontend = frontend
        self._channels = Channels()
        self._connection: asyncssh.SSHServerConnection | None = None
        self._address = ""
        self._key_attempts = 0
        self._admitted = False
        self._known = False
        self._login: Login | None = None
        self._target: ssh_pb2.SshTarget | None = None
        self._watcher: asyncio.Task[None] | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        peer = conn.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if reason := self._frontend.admit(self, self._address):
            self._frontend.count("limited")
            log.info("ssh connection refused", from_address=self._address, why=reason)
            conn.abort()
            return
        self._admitted = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._admitted:
            if not self._known:
                self._frontend.identified(self._address)
                self._frontend.count("failed")
            self._frontend.left(self)
        if self._watcher is not None:
            self._watcher.cancel()
        self._channels.abort()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        await self._channels.close()

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return False

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self._login = None
        self._target = None
        self._key_attempts += 1

        if self._key_attempts > 2 * MAX_TRIES:  # a client first queries a key, and then uses it
            assert self._connection is not None
            self._connection.abort()
            return False

        login = Login(username, fingerprint_of(key.public_data), self._address)
        target = await self._frontend.look_up(login)

        # There must be no await from here to the verification of the signature.
        self._login = login
        self._target = target
        self._note_proof(key)
        return target is not None

    def _note_proof(self, key: asyncssh.SSHKey) -> None:
        """Keep the data that the client has signed with the key, when asyncssh verifies it."""
        verify = key.verify

        def verified(data: bytes, sig: bytes) -> bool:
            is_valid = verify(data, sig)
            if is_valid and self._login is not None:
                self._login = replace(self._login, proof=Proof(key.public_data, data, sig))
            return is_valid

        key.verify = verified  # type: ignore[method-assign]

    def auth_completed(self) -> None:
        self._known = True
        if self._login is not None:
            self._frontend.note(self._login)
        self._frontend.identified(self._address)
        self._frontend.count("accepted")
        if self._login is not None:
            self._watcher = spawn("ssh.refused", self._end_when_refused(self._login))

    async def _end_when_refused(self, login: Login) -> None:
        why = await self._frontend.until_refused(login)
        log.info("ssh connection ended: its login is refused", login=login.name, why=why)
        await asyncio.sleep(_FAREWELL_S)
        if self._connection is not None:
            self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, "the login is refused now")

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        login, target = self._identified()
        if not target.session_id:
            self._channels.check(MAX_CHANNELS)
            return FilesChannel(self._frontend.tree(login), self._channels.run)
        return self._channels.session(self._frontend.start(login), "main1")

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> asyncssh.SSHTCPSession[bytes]:
        login, target = self._identified()
        if not target.session_id:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
                "log in as PROJECT/SESSION to forward ports",
            )
        return self._channels.connection(self._frontend.start(login), dest_host, dest_port, "main1")

    def _identified(self) -> tuple[Login, ssh_pb2.SshTarget]:
        if not self._known or self._login is None or self._target is None:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "nobody has logged in"
            )
        return self._login, self._target
