"""Server of a session's files on this node: an SFTP server of our own, as a process that can reach
nothing outside of one directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from moorage.agent.runtimes.execution import STDERR, STDOUT, ExecFailed
from moorage.agent.state.ports import NoFreePort, PortAllocator
from moorage.common.model.addresses import split_address

_CHUNK = 256 * 1024
_MODULE = "moorage.common.sftp.process"
# Of the package, for an interpreter that ignores the environment.
_SOURCE = str(Path(__file__).resolve().parents[3])
_START = "import sys; sys.path.insert(0, {source!r}); from {module} import main; main()"


class FilePorts:
    """Ports of the node, on which servers of files listen. ``host``: None: proxies do not reach the
    node."""

    def __init__(self, ports: PortAllocator, host: str | None) -> None:
        self._ports = ports
        self._host = host

    def listen(self) -> socket.socket | None:
        """On a port whose address ``release`` takes back; None if there is none."""
        if self._host is None:
            return None

        try:
            port = self._ports.allocate()
        except NoFreePort:
            return None

        try:
            family = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((self._host, port), family=family, backlog=8)
        except OSError:
            self._ports.release(port)
            return None

    def address(self, listener: socket.socket) -> str:
        host = self._host or ""
        return (
            f"[{host}]:{listener.getsockname()[1]}"
            if ":" in host
            else f"{host}:{listener.getsockname()[1]}"
        )

    def release(self, address: str) -> None:
        self._ports.release(split_address(address)[1])


async def serve_files(folder: Path, credential: str, ports: FilePorts) -> FileServer:
    """Start the server, as the user who owns the directory. With a credential it also listens.
    Raises ``ExecFailed``."""
    try:
        fd, owner = await asyncio.to_thread(_open, folder)
    except OSError as error:
        raise ExecFailed(f"the session has no files on this node: {error.strerror}") from error

    listener = ports.listen() if credential and hasattr(os, "memfd_create") else None
    address = "" if listener is None else ports.address(listener)
    try:
        with ExitStack() as stack:
            stack.callback(os.close, fd)
            fds = [fd]
            if listener is not None:
                fds += [stack.enter_context(listener).fileno(), _stored(stack, credential)]

            arguments = [*map(str, fds), *(["-"] * (3 - len(fds))), *map(str, owner or ())]
            process = await _start(arguments, fds)
    except BaseException as error:
        if address:
            ports.release(address)

        if isinstance(error, OSError):
            raise ExecFailed(
                f"the server of the session's files cannot be started: {error}"
            ) from error

        raise

    return FileServer(process, address, ports)


def _stored(stack: ExitStack, credential: str) -> int:
    from moorage.common.sftp.direct import credential_file  # imports ssl

    return stack.enter_context(credential_file(credential))


async def _start(arguments: list[str], fds: list[int]) -> asyncio.subprocess.Process:
    code = _START.format(source=_SOURCE, module=_MODULE)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", code, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=fds,
        start_new_session=True,
        limit=_CHUNK,
        cwd="/",
        env={},
    )


def _open(folder: Path) -> tuple[int, tuple[int, int] | None]:
    """The directory, and its owner if that is another user, whom only root can become. It is opened
    here, since its owner may not search the agent's own directories above it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(fd)
    own = os.geteuid()
    return fd, (found.st_uid, found.st_gid) if own == 0 and found.st_uid != own else None


class FileServer:
    """Implements ``Execution``. ``address``: where it listens; "": it does not."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, ports: FilePorts) -> None:
        self._process = process
        self.address = address
        self._ports = ports
        self._released = not address

    async def read(self) -> tuple[int, bytes] | None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if data := await self._process.stdout.read(_CHUNK):
            return STDOUT, data
        if text := await self._process.stderr.read(_CHUNK):
            return STDERR, text
        return None

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def resize(self, rows: int, cols: int) -> None:
        pass

    async def wait(self) -> int:
        return await self._process.wait()

    def disconnect(self) -> None:
        if not self._released:
            self._released = True
            self._ports.release(self.address)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
