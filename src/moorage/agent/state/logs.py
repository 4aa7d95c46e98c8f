"""Kernel logs on disk: one directory per kernel with ``kernel.log`` and its rotated predecessors.

``kernel.log.1`` is the most recently rotated file. Logs outlive their kernels, so that a failure can still be
examined; ``prune`` bounds them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.state.log_times import FileTimes, LogRange, TimedLines, open_times
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import KernelId

KEEP_KERNELS = 200
_CHUNK = 65_536
_FOLLOW_S = 0.1
# A file of a log and its index are renamed one after the other.
_ROTATION_S = 0.01


@dataclass(frozen=True, slots=True)
class _Piece:
    inode: int
    offset: int
    data: bytes


class LogStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, kernel_id: KernelId) -> Path:
        return self.root / kernel_id

    def exists(self, kernel_id: KernelId) -> bool:
        return bool(self._files(kernel_id))

    def _files(self, kernel_id: KernelId) -> list[Path]:
        """Oldest first."""
        found = self.folder(kernel_id).glob("kernel.log*")
        return sorted(found, key=lambda path: -int("0" + path.suffix[1:].replace("log", "")))

    def tail(self, kernel_id: KernelId, max_bytes: int) -> str:
        """The end of the log, at most ``max_bytes`` as UTF-8, complete lines where possible, no NUL."""
        data = b""
        for path in reversed(self._files(kernel_id)):
            data = _read_end(path, max_bytes - len(data)) + data
            if len(data) >= max_bytes:
                break
        return tail_text(data, max_bytes)

    async def read(
        self, kernel_id: KernelId, tail_lines: int, follow: bool, is_running: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """The log from the last ``tail_lines`` lines on (0: all of it), and with ``follow`` what is appended
        until ``is_running()`` is false. Rotation in the meantime loses nothing."""
        start = self._find_start(kernel_id, tail_lines)
        async with aclosing(self._pieces(kernel_id, start, follow, is_running)) as pieces:
            async for piece in pieces:
                yield piece.data

    def open(
        self, kernel_id: KernelId, wanted: LogRange, is_running: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """``read``, or where ``wanted`` asks for times ``read_timed``."""
        if wanted.needs_times:
            return self.read_timed(kernel_id, wanted, is_running)
        return self.read(kernel_id, wanted.tail_lines, wanted.follow, is_running)

    async def read_timed(
        self, kernel_id: KernelId, wanted: LogRange, is_running: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a log by the times at which they were written. Raises ``NotFound`` if none were
        kept."""
        path, offset, within = await asyncio.to_thread(self._find_timed_start, kernel_id, wanted)
        lines, times = TimedLines(wanted, within=within), None
        try:
            async with aclosing(self._pieces(kernel_id, (path, offset), wanted.follow, is_running)) as pieces:
                async for piece in pieces:
                    if times is not None and times.inode == piece.inode:
                        times.refresh()
                    else:
                        if times is not None:
                            times.close()
                        times = await self._open_times(kernel_id, piece.inode)
                    if shown := _timed(lines, times, piece):
                        yield shown
        finally:
            if times is not None:
                times.close()

    async def _open_times(self, kernel_id: KernelId, inode: int) -> FileTimes | None:
        times = open_times(self.folder(kernel_id), inode)
        if times is None:
            await asyncio.sleep(_ROTATION_S)
            times = open_times(self.folder(kernel_id), inode)
        return times

    async def _pieces(
        self,
        kernel_id: KernelId,
        start: tuple[Path | None, int],
        follow: bool,
        is_running: Callable[[], bool],
    ) -> AsyncGenerator[_Piece, None]:
        path, offset = start
        inode = -1
        while True:
            # Checked before reading, so that output written before the end is not missed.
            is_following = follow and is_running()
            while path is not None:
                try:
                    file = path.open("rb")
                except FileNotFoundError:
                    path, offset = self._find_start(kernel_id, 0)  # rotated away meanwhile
                    continue
                with file:
                    inode = os.fstat(file.fileno()).st_ino
                    file.seek(offset)
                    while data := file.read(_CHUNK):
                        offset += len(data)
                        yield _Piece(inode, offset - len(data), data)
                newer = self._next_file(kernel_id, inode)
                if newer is None:
                    break
                path, offset = newer, 0
            if not is_following:
                return
            await asyncio.sleep(_FOLLOW_S)
            path = self._find_by_inode(kernel_id, inode)
            if path is None:
                path, offset = self._find_start(kernel_id, 0)

    def _find_timed_start(self, kernel_id: KernelId, wanted: LogRange) -> tuple[Path | None, int, bool]:
        """Where to begin, and whether that may be within a line. Raises ``NotFound``."""
        files, folder = self._files(kernel_id), self.folder(kernel_id)
        indexes = {path: open_times(folder, _inode(path)) for path in files}
        try:
            if not any(indexes.values()) and any(path.stat().st_size for path in files):
                raise NotFound(
                    "no times of this log were kept: its runtime keeps none, or an older release started it",
                    next_step="leave out --timestamps and --since",
                )
            path, offset = self._find_start(kernel_id, wanted.tail_lines)
            if not wanted.since_ms or path is None:
                return path, offset, False
            for later in files[files.index(path) :]:
                index = indexes[later]
                first = None if index is None else index.first_since(wanted.since_ms)
                if first is not None and (later != path or first > offset):
                    return later, max(first - 1, 0), first > 0
                if first is not None:
                    return path, offset, False
            end = files[-1].stat().st_size
            return files[-1], max(end - 1, 0), end > 0
        except FileNotFoundError:  # rotated away meanwhile: TimedLines leaves out what is older
            return files[0], 0, False
        finally:
            for index in filter(None, indexes.values()):
                index.close()

    def _find_start(self, kernel_id: KernelId, tail_lines: int) -> tuple[Path | None, int]:
        files = self._files(kernel_id)
        if not files or not tail_lines:
            return (files[0] if files else None), 0
        remaining = tail_lines
        for path in reversed(files):
            offset, found = _find_last_lines(path, remaining)
            if found >= remaining:
                return path, offset
            remaining -= found
        return files[0], 0

    def _next_file(self, kernel_id: KernelId, inode: int) -> Path | None:
        """The next newer file, or None if this is the newest; the oldest one if this file was deleted."""
        files = self._files(kernel_id)
        inodes = [_inode(path) for path in files]
        if inode not in inodes:
            return files[0] if files else None
        index = inodes.index(inode) + 1
        return files[index] if index < len(files) else None

    def _find_by_inode(self, kernel_id: KernelId, inode: int) -> Path | None:
        return next((path for path in self._files(kernel_id) if _inode(path) == inode), None)

    def prune(self, live: Collection[KernelId], keep: int = KEEP_KERNELS) -> None:
        """Delete the logs of removed kernels except the newest ``keep``."""
        if not self.root.is_dir():
            return
        removed = [path for path in self.root.iterdir() if path.name not in live]
        for path in sorted(removed, key=_modified_at, reverse=True)[keep:]:
            shutil.rmtree(path, ignore_errors=True)


def _timed(lines: TimedLines, times: FileTimes | None, piece: _Piece) -> bytes:
    if times is None:
        return lines.feed(piece.data, lambda at: 0)
    return lines.feed(piece.data, lambda at: times.at(piece.offset + at), times.precision_ms)


def tail_text(data: bytes, max_bytes: int) -> str:
    """The end of a log in the form of ``Runtime.log_tail``. Data of ``max_bytes`` or more is taken as
    truncated at its beginning."""
    if len(data) >= max_bytes:
        # The first line is probably incomplete, and so may be its first character.
        data = data.partition(b"\n")[2] or data
    text = data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode()[-max_bytes:].decode(errors="ignore")


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1


def _read_end(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except FileNotFoundError:
        return b""


def _find_last_lines(path: Path, count: int) -> tuple[int, int]:
    """The offset of the last ``count`` lines of a file, and how many lines were found (fewer in a shorter
    file)."""
    found = 0
    with path.open("rb") as file:
        end = position = file.seek(0, os.SEEK_END)
        while position:
            step = min(_CHUNK, position)
            position -= step
            file.seek(position)
            data = file.read(step)
            at = len(data)
            while (at := data.rfind(b"\n", 0, at)) >= 0:
                if position + at == end - 1:
                    continue  # the newline at the end of the last line starts no other
                found += 1
                if found == count:
                    return position + at + 1, found
    return 0, found + (1 if end else 0)
