"""SFTP for a user who has logged in without selecting a session: the virtual root over all
sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncssh

from moorage.common.aio.clock import Clock
from moorage.common.sftp.wire import Malformed
from moorage.common.ssh.channels import PipedChannel, Run
from moorage.common.ssh.requests import SFTP
from moorage.proxy.control.ssh_access import Login, SshAccess
from moorage.proxy.ssh.backends import GreetedFileServer, greeted
from moorage.proxy.ssh.router import SftpRouter

_LISTED_S = 2.0


class UserTree:
    """The projects and sessions that a login may reach, from the manager. A listing is reused for
    ``_LISTED_S`` seconds."""

    def __init__(
        self, access: SshAccess, login: Login, clock: Clock, count: Callable[[], None]
    ) -> None:
        self._access = access
        self._login = login
        self._clock = clock
        self._count = count
        self._listed: dict[str, tuple[float, list[str]]] = {}

    async def list(self, project: str) -> list[str]:
        at, names = self._listed.get(project, (0.0, []))
        now = self._clock.monotonic()
        if project not in self._listed or now - at > _LISTED_S:
            names = await self._access.list(self._login, project)
            self._listed[project] = now, names
        return names

    @asynccontextmanager
    async def open(self, session: str, hello: bytes) -> AsyncIterator[GreetedFileServer]:
        async with self._access.open(self._login, None, session) as link:
            server = await greeted(link, hello)
            self._count()
            yield server


class FilesChannel(PipedChannel, asyncssh.SSHServerSession[bytes]):
    """A channel with an SFTP server. Shells and commands are refused with a hint."""

    def __init__(self, tree: UserTree, run: Run) -> None:
        super().__init__(run)
        self._tree = tree

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object
    ) -> bool:
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == SFTP

    async def _serve(self) -> None:
        if self._chan.get_subsystem() != SFTP:
            self._fail(
                "this login is for SFTP; for a shell or a command, log in as PROJECT/SESSION"
            )
            return

        router = SftpRouter(self._tree, self._chan.write, self._writable)
        try:
            while (data := await self._input.get()) != b"":
                assert isinstance(data, bytes)
                await router.feed(data)
                self._taken(data)
        except Malformed as error:
            self._fail(f"this is not SFTP: {error}")
            return
        finally:
            await router.close()

        self._chan.exit(0)
