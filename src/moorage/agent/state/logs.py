"""Kernel logs on disk: one directory per kernel, with its log files (``log_files.py``).

Logs outlive their kernels, so that a failure can still be examined. ``prune`` limits them.
"""

from __future__ import annotations

import asyncio
import shutil
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.state.log_files import LogFile, log_paths, open_files, successor
from moorage.agent.state.log_times import FileTimes, LogRange, TimedLines
from moorage.agent.state.log_writer import OUTPUT, Log
from moorage.common.link.log_request import LogPiece
from moorage.common.model.errors import MoorageError, NotFound
from moorage.common.model.ids import KernelId

KEEP_KERNELS = 200
_FOLLOW_S = 0.1
# A log file and its index are created one after the other.
_ROTATION_S = 0.01


class OutputLost(MoorageError):
    """Bytes of a log were lost before its reader got them. The part that was kept starts after
    them."""

    code = "output-lost"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a log. ``lost``: bytes before it are missing."""

    file: LogFile
    offset: int
    data: bytes
    lost: bool = False

    @property
    def number(self) -> int | None:
        """The number of the piece's first byte, None if unknown."""
        return None if self.file.start is None else self.file.start + self.offset


@dataclass(slots=True)
class _Place:
    """The place where reading starts. ``file``: an open file; None if there is none yet.
    ``number``: the first byte's number; None if unknown. ``within``: the place may be within a
    line."""

    file: LogFile | None
    offset: int
    number: int | None
    within: bool = False

    def take(self) -> LogFile | None:
        """Hand over the file, which the caller must close."""
        file = self.file
        self.file = None
        return file

    def close(self) -> None:
        if (file := self.take()) is not None:
            file.close()


class LogStore:
    """The kernel logs. ``max_bytes``, ``keep_files``: the limits for logs that the agent itself
    writes, see ``Log``."""

    def __init__(self, root: Path, *, max_bytes: int = 10 << 20, keep_files: int = 3) -> None:
        self.root = root
        self._max_bytes = max_bytes
        self._keep_files = keep_files

    def folder(self, kernel_id: KernelId) -> Path:
        return self.root / kernel_id

    def writer(self, kernel_id: KernelId, precision_ms: int = 0) -> Log:
        """Open a log for writing. Blocks. This continues a log that an older release has written in
        one file."""
        folder = self.folder(kernel_id)
        paths = [path for path, _ in log_paths(folder)]
        if [path.name for path in paths] == ["kernel.log"]:
            paths[0].replace(folder / f"{OUTPUT}{0:016d}")
        return Log(str(folder), self._max_bytes, self._keep_files, precision_ms)

    def exists(self, kernel_id: KernelId) -> bool:
        return bool(log_paths(self.folder(kernel_id)))

    def tail(self, kernel_id: KernelId, max_bytes: int) -> str:
        """The end of the log, at most ``max_bytes`` as UTF-8, complete lines where possible, no
        NUL."""
        data = b""
        with open_files(self.folder(kernel_id)) as files:
            for file in reversed(files):
                left = max_bytes - len(data)
                data = file.read(max(0, file.size - left), left) + data
                if len(data) >= max_bytes:
                    break

        return tail_text(data, max_bytes)

    async def read_range(
        self, kernel_id: KernelId, wanted: LogRange, is_running: Callable[[], bool]
    ) -> AsyncGenerator[LogPiece, None]:
        """Read the ``wanted`` part of a log and, with ``follow``, appended data until
        ``is_running()`` is false. A reader that keeps up loses nothing to rotations.

        Pieces have the numbers of their first bytes, if known. An empty first piece shows where the
        log starts, unless that depends on times.

        Raises ``NotFound`` if times are requested but none were kept. Where bytes are missing, a
        reader that can handle gaps gets ``OutputLost``, and other readers get the data kept after
        the gap. A follower without numbers is informed only about data that was rotated away while
        it was reading.
        """
        if wanted.needs_times:
            place = await asyncio.to_thread(self._place, kernel_id, wanted)
            lines = TimedLines(wanted, within=place.within)
        else:
            place = self._place(kernel_id, wanted)
            lines = None

        times: FileTimes | None = None
        timed: LogFile | None = None
        try:
            async with aclosing(self._pieces(kernel_id, place, wanted, is_running)) as pieces:
                if not wanted.since_ms:
                    yield LogPiece(b"", place.number)

                async for piece in pieces:
                    if piece.lost and wanted.tells_gaps:
                        raise OutputLost("the log was rotated while it could not be read")
                    if lines is None:
                        yield LogPiece(piece.data, piece.number)
                        continue

                    if times is not None and timed is piece.file:
                        times.refresh()
                    else:
                        if times is not None:
                            times.close()

                        times = await _open_times(piece.file)
                        timed = piece.file

                    if shown := _timed(lines, times, piece):
                        yield LogPiece(
                            shown, None if piece.number is None else piece.number + lines.first
                        )
        finally:
            place.close()
            if times is not None:
                times.close()

    async def _pieces(
        self, kernel_id: KernelId, place: _Place, wanted: LogRange, is_running: Callable[[], bool]
    ) -> AsyncGenerator[_Piece, None]:
        file = place.take()
        offset = place.offset
        lost = False
        is_numbered = wanted.offset is not None
        try:
            while True:
                # This is checked before reading, so that output written before the end is not
                # missed.
                is_following = wanted.follow and is_running()
                if file is None:
                    first = self._place(kernel_id, LogRange())
                    file = first.take()
                    offset = first.offset
                    lost = file is not None and (file.start or 0) > (place.number or 0)

                while file is not None:
                    while data := file.read(offset):
                        offset += len(data)
                        yield _Piece(file, offset - len(data), data, lost)
                        lost = False

                    newer, is_gap = successor(file)
                    if newer is None:
                        break
                    if offset < file.size:  # written between the last check and its rotation
                        newer.close()
                        continue

                    # A reader without numbers restarts at a gap. It can get past a gap that was
                    # rotated away, but at a gap that is kept, it would restart endlessly.
                    lost = lost or (is_gap and (is_numbered or file.is_deleted))
                    file.close()
                    file = newer
                    offset = 0

                if not is_following:
                    return

                await asyncio.sleep(_FOLLOW_S)
        finally:
            if file is not None:
                file.close()

    def _place(self, kernel_id: KernelId, wanted: LogRange) -> _Place:
        """The place where ``wanted`` starts. Raises ``NotFound``."""
        with open_files(self.folder(kernel_id)) as files:
            if wanted.needs_times:
                at, offset, within = _find_times(files, wanted)
            else:
                at, offset, within = *_place_of_last_lines(files, wanted.tail_lines), False

            if wanted.offset and (numbered := _place_of_number(files, wanted.offset)) > (
                at,
                offset,
            ):
                at, offset, within = *numbered, False

            if not files:
                return _Place(None, 0, wanted.offset or 0)

            file = files.pop(at)
            return _Place(file, offset, None if file.start is None else file.start + offset, within)

    def prune(self, live: Collection[KernelId], keep: int = KEEP_KERNELS) -> None:
        """Delete the logs of removed kernels except the newest ``keep``."""
        if not self.root.is_dir():
            return
        removed = [path for path in self.root.iterdir() if path.name not in live]
        for path in sorted(removed, key=_modified_at, reverse=True)[keep:]:
            shutil.rmtree(path, ignore_errors=True)


def _find_times(files: list[LogFile], wanted: LogRange) -> tuple[int, int, bool]:
    """The result of ``_timed_place``. Raises ``NotFound``."""
    indexes = [file.open_times() for file in files]
    try:
        if not any(indexes) and any(file.size for file in files):
            raise NotFound(
                "no times of this log were kept: its runtime does not keep them, or an older "
                "release started it",
                next_step="leave out --timestamps and --since",
            )

        return _timed_place(files, indexes, wanted)
    finally:
        for index in filter(None, indexes):
            index.close()


async def _open_times(file: LogFile) -> FileTimes | None:
    times = file.open_times()
    if times is None:
        await asyncio.sleep(_ROTATION_S)
        times = file.open_times()
    return times


def _place_of_last_lines(files: list[LogFile], count: int) -> tuple[int, int]:
    """The index of the file in which the last ``count`` lines start (0 means all), and the offset
    there."""
    remaining = count
    for at in reversed(range(len(files) if count else 0)):
        offset, found = files[at].last_lines(remaining)
        if found >= remaining:
            return at, offset
        remaining -= found
    return 0, 0


def _place_of_number(files: list[LogFile], number: int) -> tuple[int, int]:
    """The index of the file with the byte ``number``, or otherwise of the first kept file after it,
    and the offset there. For files without numbers, the start of the first file."""
    if not files or files[-1].start is None:
        return 0, 0

    starts = [-1 if file.start is None else file.start for file in files]
    at = max(bisect_right(starts, number) - 1, 0)
    offset = max(number - max(starts[at], 0), 0)
    if at + 1 < len(files) and offset >= files[at].size:
        return at + 1, 0  # also after the last byte before a gap

    return at, offset


def _timed_place(
    files: list[LogFile], indexes: list[FileTimes | None], wanted: LogRange
) -> tuple[int, int, bool]:
    """The index of the file in which ``wanted`` starts, the offset there, and whether it may be
    within a line."""
    begin, offset = _place_of_last_lines(files, wanted.tail_lines)
    if not wanted.since_ms or not files:
        return begin, offset, False

    for at in range(begin, len(files)):
        index = indexes[at]
        first = None if index is None else index.first_since(wanted.since_ms)
        if first is not None and (at != begin or first > offset):
            return at, max(first - 1, 0), first > 0
        if first is not None:
            return at, offset, False

    end = files[-1].size
    return len(files) - 1, max(end - 1, 0), end > 0


async def data_of(pieces: AsyncGenerator[LogPiece, None]) -> AsyncGenerator[bytes, None]:
    """The data in pieces, without the numbers and without empty pieces."""
    async with aclosing(pieces):
        async for piece in pieces:
            if piece.data:
                yield piece.data


def _timed(lines: TimedLines, times: FileTimes | None, piece: _Piece) -> bytes:
    if times is None:
        return lines.feed(piece.data, lambda at: 0)
    return lines.feed(piece.data, lambda at: times.at(piece.offset + at), times.precision_ms)


def tail_text(data: bytes, max_bytes: int) -> str:
    """The end of a log, in the form that ``Runtime.log_tail`` returns. Data of ``max_bytes`` or
    more is treated as truncated at its start."""
    if len(data) >= max_bytes:
        # The first line is probably incomplete, and its first character may be, too.
        data = data.partition(b"\n")[2] or data
    text = data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode()[-max_bytes:].decode(errors="ignore")


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0
