"""Writer of a kernel's log: files of bounded size, each named by the number of its first byte.

``output.NUMBER`` counts from the first byte written by the kernel. A file keeps its name and, once
there is a newer file, its contents, so that the names alone show a reader which bytes are kept, in
which order, and which are lost. ``times.NUMBER`` beside it has the times of its bytes
(``log_times.py``).

Supervisors of processes (``runtimes/process/shim.py``) and launchers of batch jobs
(``runtimes/batch``) run a standalone copy of this file, which therefore uses little of the standard
library and supports Python 3.7 or later.
"""

from __future__ import annotations

import os
import time

# One time is recorded per interval, and at most as many as the log's bytes plus this reserve allow.
PRECISION_MS = 100
SPARE_BYTES = 4096
OUTPUT = "output."
TIMES = "times."


class Log:
    """A writer that appends to the log in ``folder``. A file has at most ``max_bytes``, and
    ``keep`` older files are kept. ``precision_ms``: the precision of the times; 0 means that no
    times are kept.

    ``end``: the number of the next byte. Bytes that cannot be written to the disk are counted but
    missing, because a full disk must not stop the kernel.
    """

    def __init__(
        self, folder: str, max_bytes: int, keep: int, precision_ms: int = PRECISION_MS
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.keep = keep
        self.precision_ms = precision_ms
        self.fd = -1
        self.times_fd = -1
        self.start = 0
        self.end = 0
        self.size = 0
        self.times_size = 0
        self.noted_at = 0
        try:
            kept = self._kept()
            if kept:
                self.start = kept[-1]
                self.end = self.start + os.stat(self._path(OUTPUT, self.start)).st_size

            self._open()
        except OSError:
            self.close()

    def write(self, data: bytes, at_ms: int = 0) -> None:
        """Write data. ``at_ms``: its unix time; 0 means now."""
        if self.precision_ms and not at_ms:
            at_ms = int(time.clock_gettime(time.CLOCK_REALTIME) * 1000)
        for start in range(0, len(data), self.max_bytes):
            self._write(data[start : start + self.max_bytes], at_ms)

    def _write(self, data: bytes, at_ms: int) -> None:
        if self.fd < 0 or (self.size and self.size + len(data) > self.max_bytes):
            self._rotate()
        if self.precision_ms:
            self._note_time(at_ms)

        written = 0
        if self.fd >= 0:
            try:
                written = os.write(self.fd, data)
            except OSError:
                pass

        self.size += written
        self.end += len(data)
        if written < len(data):
            self.close()  # the next file starts after the missing bytes
            if not self.size:
                self._remove(self.start)

    def skip_to(self, number: int) -> None:
        """Skip to ``number``. The bytes before it are missing."""
        if number > self.end:
            self.close()
            self.end = number

    def close(self) -> None:
        for fd in (self.fd, self.times_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = -1
        self.times_fd = -1

    def _path(self, kind: str, number: int) -> str:
        return f"{self.folder}/{kind}{number:016d}"

    def _kept(self) -> list[int]:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        names = (name[len(OUTPUT) :] for name in os.listdir(self.folder) if name.startswith(OUTPUT))
        return sorted(int(name) for name in names if name.isdigit())

    def _open(self) -> None:
        path = self._path(OUTPUT, self.start)
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.size = os.fstat(self.fd).st_size
        self.end = max(self.end, self.start + self.size)
        self.noted_at = 0

    def _rotate(self) -> None:
        self.close()
        try:
            self.start = self.end
            self._open()
            for number in self._kept()[: -self.keep - 1]:
                self._remove(number)
        except OSError:
            pass

    def _remove(self, number: int) -> None:
        for kind in (OUTPUT, TIMES):
            try:
                os.unlink(self._path(kind, number))
            except OSError:
                pass

    def _note_time(self, now_ms: int) -> None:
        """Record the time before the bytes are written, so that a reader of the bytes can find
        it."""
        if self.fd < 0 or 0 <= now_ms - self.noted_at < self.precision_ms:
            return

        self.noted_at = now_ms
        try:
            if self.times_fd < 0:
                path = self._path(TIMES, self.start)
                self.times_fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                self.times_size = os.fstat(self.times_fd).st_size
                if not self.times_size:
                    self._append_pair(self.start, self.precision_ms)

            if self.times_size <= self.size + SPARE_BYTES:
                self._append_pair(self.size, now_ms)
        except OSError:
            pass

    def _append_pair(self, first: int, second: int) -> None:
        written = os.write(
            self.times_fd, first.to_bytes(8, "little") + second.to_bytes(8, "little")
        )
        if written == 16:
            self.times_size += written
        else:  # a full disk
            os.ftruncate(self.times_fd, self.times_size)
