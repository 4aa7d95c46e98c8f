"""Copies between a tar stream and a job's directory on a file system that the agent can access.

The job owns its directory and may change it at any moment. Every step therefore uses the descriptor
of an open directory, no link is followed, and a path that leads out of the directory is refused.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from moorage.agent.runtimes.execution import STDOUT, Copy, ExecFailed
from moorage.common import archive
from moorage.common.model.errors import InvalidInput, NotFound

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 65536
_DEPTH = 128
_NOTHING = "nothing was copied"


def parts_of(path: str) -> tuple[str, ...]:
    """The components of a path in the job's directory; () is the directory itself. Raises
    ``InvalidInput``."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidInput(
            f"{path!r} is not in the directory of the job",
            next_step="name a path relative to the job's directory, without two dots",
        )
    return parts


def pack(work: Path, path: str, sink: IO[bytes]) -> None:
    """Write one of the job's files or directories to ``sink``. Raises ``MoorageError`` and
    ``OSError``."""
    parts = parts_of(path)
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        parent = _open(work, parts[:-1])
        try:
            if parts and stat.S_ISLNK(_mode(parent, parts[-1], path)):
                raise InvalidInput(
                    f"{path!r} is a link", next_step="name the file or directory itself"
                )

            _add(tar, parent, parts[-1] if parts else ".", "/".join((".", *parts[-1:])))
        finally:
            os.close(parent)


def receive(work: Path, copy: Copy, source: IO[bytes], is_complete: Callable[[], bool]) -> None:
    """Unpack ``source`` beside the job's directory, and move it there when it is complete. Raises
    ``MoorageError`` and ``OSError``."""
    parts = parts_of(copy.path)
    if copy.name in ("", ".", "..") or "/" in copy.name:
        raise InvalidInput(f"{copy.name!r} is not a file name")

    into, name = _target(work, parts, copy)
    staged = Path(tempfile.mkdtemp(prefix=".moorage-cp-", dir=work.parent))
    try:
        limits = archive.ArchiveLimits(shutil.disk_usage(staged).free * 95 // 100)
        archive.unpack(
            source, staged / archive.ROOT, top=archive.ROOT, report=lambda _: None, limits=limits
        )
        while source.read(_CHUNK):
            pass  # the padding of the tar stream

        if not is_complete():
            raise ExecFailed("the copy was cut off", next_step=_NOTHING)

        fd = os.open(staged, _DIRECTORY)
        try:
            archive.move(fd, archive.ROOT, into, name)
        except NotADirectoryError:
            raise InvalidInput(f"{name!r} is not a directory, but the source is") from None
        except IsADirectoryError:
            raise InvalidInput(f"{name!r} is a directory, but the source is not") from None
        finally:
            os.close(fd)
    finally:
        os.close(into)
        shutil.rmtree(staged, ignore_errors=True)


def _target(work: Path, parts: tuple[str, ...], copy: Copy) -> tuple[int, str]:
    """The open directory that receives the copy, and the copy's name there."""
    parent = _open(work, parts[:-1])
    if not parts:
        return parent, copy.name

    try:
        mode = os.lstat(parts[-1], dir_fd=parent).st_mode
    except FileNotFoundError:
        mode = 0

    if not stat.S_ISDIR(mode):
        if copy.path.endswith("/"):
            os.close(parent)
            raise NotFound(f"there is no directory {copy.path}")

        return parent, parts[-1]

    os.close(parent)
    return _open(work, parts), copy.name


def _open(work: Path, parts: tuple[str, ...]) -> int:
    """Open a directory below ``work`` without following a link."""
    at = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, part in enumerate(parts, 1):
        try:
            inner = os.open(part, _DIRECTORY, dir_fd=at)
        except FileNotFoundError:
            raise NotFound(f"there is no directory {'/'.join(parts[:number])}") from None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise

            raise InvalidInput(
                f"{'/'.join(parts[:number])!r} is not a directory; links are not followed"
            ) from None
        finally:
            os.close(at)

        at = inner

    return at


def _mode(parent: int, name: str, path: str) -> int:
    try:
        return os.lstat(name, dir_fd=parent).st_mode
    except FileNotFoundError:
        raise NotFound(f"there is no {path}") from None


def _add(tar: tarfile.TarFile, parent: int, name: str, entry: str) -> None:
    """Add the current files, directories and links. Other kinds are left out."""
    if entry.count("/") > _DEPTH:
        raise InvalidInput(f"a copy may nest at most {_DEPTH} directories")

    found = os.lstat(name, dir_fd=parent)
    info = tarfile.TarInfo(entry)
    info.mode = stat.S_IMODE(found.st_mode)
    info.mtime = int(found.st_mtime)
    if stat.S_ISLNK(found.st_mode):
        info.linkname = os.readlink(name, dir_fd=parent)
        info.type = tarfile.SYMTYPE
        tar.addfile(info)
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        inner = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            for below in sorted(os.listdir(inner)):
                with suppress(FileNotFoundError):  # already deleted
                    _add(tar, inner, below, f"{entry}/{below}")
        finally:
            os.close(inner)
    elif stat.S_ISREG(found.st_mode):
        with open(os.open(name, _FILE, dir_fd=parent), "rb") as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):
                info.size = found.st_size
                tar.addfile(info, file)

    tar.members.clear()  # type: ignore[attr-defined]


class _Threads:
    """A pipe to work in a separate thread, because a copy may wait for its user indefinitely."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="copy")
        self._open = True

    def _run(self, work: Callable[[IO[bytes]], None], fd: int, mode: str) -> Future[None]:
        def run() -> None:
            with open(fd, mode) as file:
                work(file)

        return self._threads.submit(run)

    def _close(self, fd: int) -> None:
        """Close the pipe after its current use."""
        if self._open:
            self._open = False
            self._threads.submit(os.close, fd)

    async def write(self, data: bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def resize(self, rows: int, cols: int) -> None: ...

    async def wait(self) -> int:
        return 0


class CopyOut(_Threads):
    """A copy to the user. ``work`` writes its data."""

    def __init__(self, work: Callable[[IO[bytes]], None]) -> None:
        super().__init__()
        self._fd, end = os.pipe()
        self._work = self._run(work, end, "wb")

    async def read(self) -> tuple[int, bytes] | None:
        loop = asyncio.get_running_loop()
        if self._open and (
            data := await loop.run_in_executor(self._threads, os.read, self._fd, _CHUNK)
        ):
            return STDOUT, data
        await asyncio.wrap_future(self._work)
        return None

    def disconnect(self) -> None:
        self._close(self._fd)
        self._threads.shutdown(wait=False)


class CopyIn(_Threads):
    """A copy from the user. ``work`` reads its data, and then checks that it was complete."""

    def __init__(self, work: Callable[[IO[bytes], Callable[[], bool]], None]) -> None:
        super().__init__()
        end, self._fd = os.pipe()
        self._complete = False
        self._work = self._run(lambda file: work(file, lambda: self._complete), end, "rb")

    async def write(self, data: bytes) -> None:
        if self._open:
            with suppress(BrokenPipeError):  # it failed, and read() raises the error
                await asyncio.get_running_loop().run_in_executor(
                    self._threads, _write, self._fd, data
                )

    async def end_input(self) -> None:
        self._complete = True
        self._close(self._fd)

    async def read(self) -> tuple[int, bytes] | None:
        await asyncio.wrap_future(self._work)
        return None

    def disconnect(self) -> None:
        self._close(self._fd)
        self._threads.shutdown(wait=False)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
