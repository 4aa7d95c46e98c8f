"""Index of the times at which a log's bytes were written, stored beside each of its files.

``times.NUMBER`` belongs to ``output.NUMBER``, and is written by the log's writer
(``log_writer.py``). It consists of pairs of 8-byte integers, little endian. The first pair is that
number and the precision in milliseconds. Each other pair is an offset in the file and the unix time
in milliseconds from which the bytes there were written. ``kernel.times.1`` belongs to an older
release's ``kernel.log.1``, and starts with that file's inode, which lets a reader find it while
files are renamed.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

UNKNOWN_TIME = b"- "


@dataclass(frozen=True, slots=True)
class LogRange:
    """The part of a log to read: the last ``tail_lines`` lines (0 means all) written since
    ``since_ms`` (unix time; 0 means from the beginning) and, with ``follow``, everything up to its
    end. ``timestamps``: each line starts with its time. ``offset``: skip the bytes before this one,
    which starts a line if ``timestamps`` is set."""

    tail_lines: int = 0
    follow: bool = False
    timestamps: bool = False
    since_ms: int = 0
    offset: int | None = None

    @property
    def tells_gaps(self) -> bool:
        """Whether the reader can handle missing bytes. A follower looks for the place."""
        return self.follow or self.offset is not None

    @property
    def needs_times(self) -> bool:
        return self.timestamps or self.since_ms > 0


class FileTimes:
    """The index of one log file. Unknown times are 0. ``file``: the file's number or inode."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offsets = array("Q")
        self._times = array("Q")
        header = array("Q", file.read(16))
        self.file = header[0]
        self.precision_ms = header[1]

    def close(self) -> None:
        self._file.close()

    def refresh(self) -> None:
        """Read the appended entries."""
        data = self._file.read()
        if partial := len(data) % 16:  # it is being written
            self._file.seek(-partial, os.SEEK_CUR)
            data = data[:-partial]
        pairs = array("Q", data)
        self._offsets += pairs[::2]
        self._times += pairs[1::2]

    def at(self, offset: int) -> int:
        """The time at which the byte at ``offset`` was written."""
        index = bisect_right(self._offsets, offset) - 1
        return self._times[index] if index >= 0 else 0

    def first_since(self, since_ms: int) -> int | None:
        """The first offset written since that time."""
        least = since_ms - self.precision_ms
        pairs = zip(self._offsets, self._times, strict=True)
        return next((offset for offset, time in pairs if time >= least), None)


def open_times(folder: Path, inode: int) -> FileTimes | None:
    """The index of the log file with this inode, or None."""
    for path in folder.glob("kernel.times*"):
        if times := times_of(path, inode):
            return times
    return None


def times_of(path: Path, file: int) -> FileTimes | None:
    """The index at ``path``, if it belongs to ``file``."""
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        return None  # it was rotated away

    try:
        times = FileTimes(opened)
    except (IndexError, ValueError):  # the header is incomplete
        opened.close()
        return None

    if times.file != file:
        opened.close()
        return None

    times.refresh()
    return times


def set_inode(times: Path, log: Path) -> None:
    """Write the inode of ``log`` into its index after both were moved, perhaps to another file
    system."""
    with times.open("r+b") as file:
        file.write(array("Q", (log.stat().st_ino,)).tobytes())


class TimedLines:
    """Lines preceded by their times, from the first line written since ``since_ms``. Pure.

    ``within``: the first piece starts within a line, which is left out if ``since_ms`` is given.
    ``first``: the index of the first byte shown from the newest piece.
    """

    def __init__(self, wanted: LogRange, *, within: bool = False) -> None:
        self._stamps = wanted.timestamps
        self._since_ms = wanted.since_ms
        self._within = within
        self._skip = wanted.since_ms > 0
        self.first = 0

    def feed(self, data: bytes, time_at: Callable[[int], int], precision_ms: int = 0) -> bytes:
        """Feed the next piece, which may start and end anywhere. ``time_at``: returns the time of
        the byte at an index in the piece."""
        shown = list[bytes]()
        start = 0
        self.first = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            if not self._within:
                time_ms = time_at(start)
                if self._skip and time_ms >= max(self._since_ms - precision_ms, 1):
                    self._skip = False
                if self._stamps and not self._skip:
                    shown.append(stamp(time_ms))

            if self._skip:
                self.first = end
            else:
                shown.append(data[start:end])

            self._within = data[end - 1] != 10
            start = end

        return b"".join(shown)


def stamp(time_ms: int) -> bytes:
    if not time_ms:
        return UNKNOWN_TIME
    seconds, rest = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z ".encode()
