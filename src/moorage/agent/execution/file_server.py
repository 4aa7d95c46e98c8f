"""Server for a session's files on this node: our own SFTP server, in a process that can reach
nothing outside one directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from moorage.agent.runtimes.execution import STDERR, STDOUT, ExecFailed

_CHUNK = 256 * 1024
_MODULE = "moorage.common.sftp.process"
# The package's path, for an interpreter that ignores the environment.
_SOURCE = str(Path(__file__).resolve().parents[3])
_START = "import sys; sys.path.insert(0, {source!r}); from {module} import main; main()"


async def serve_files(folder: Path) -> FileServer:
    """Start the server, as the user who owns the directory. Raises ``ExecFailed``."""
    try:
        fd, owner = await asyncio.to_thread(_open, folder)
    except OSError as error:
        raise ExecFailed(f"the session has no files on this node: {error.strerror}") from error

    try:
        return FileServer(await _start(fd, owner))
    except OSError as error:
        raise ExecFailed(f"cannot start the server of the session's files: {error}") from error
    finally:
        os.close(fd)


async def _start(folder: int, owner: tuple[int, int] | None) -> asyncio.subprocess.Process:
    arguments = map(str, (folder, *(owner or ())))
    code = _START.format(source=_SOURCE, module=_MODULE)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", code, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[folder],
        start_new_session=True,
        limit=_CHUNK,
        cwd="/",
        env={},
    )


def _open(folder: Path) -> tuple[int, tuple[int, int] | None]:
    """Open the directory, and return its owner if that is a different user, which only root can
    switch to. The directory is opened here because its owner may not be allowed to search the
    agent's directories above it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(fd)
    own = os.geteuid()
    return fd, (found.st_uid, found.st_gid) if own == 0 and found.st_uid != own else None


class FileServer:
    """The running server, as an ``Execution``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

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
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
