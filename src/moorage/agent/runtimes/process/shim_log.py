"""Log of one kernel as its supervisor writes it, rotated by size. Imported by the shim (``shim.py``)."""

from __future__ import annotations

import os
import time

# One time is noted in this interval, and no more of them than the log has bytes and these to spare.
PRECISION_MS, SPARE_BYTES = 100, 4096


class Log:
    """Appends to ``kernel.log`` and renames it to ``kernel.log.1``, ``.2`` ... at ``max_bytes``.

    ``kernel.times`` beside it has the times at which its bytes were written (``agent/state/log_times.py``).
    """

    def __init__(self, folder: str, max_bytes: int, keep: int) -> None:
        self.path, self.max_bytes, self.keep = f"{folder}/kernel.log", max_bytes, keep
        self.times = f"{folder}/kernel.times"
        self.fd = self.size = self.times_fd = -1
        self.times_size = self.noted_at = 0
        self._open()

    def _open(self) -> None:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self.size = os.fstat(self.fd).st_size
        except OSError:
            self.fd = -1  # a full or missing disk must not stop the kernel

    def write(self, data: bytes) -> None:
        if self.fd < 0 or (self.size and self.size + len(data) > self.max_bytes):
            self._rotate()
        self._note_time()
        try:
            self.size += os.write(self.fd, data)
        except OSError:
            pass

    def _note_time(self) -> None:
        """Before the bytes are written: whoever reads them finds their time."""
        now = int(time.clock_gettime(time.CLOCK_REALTIME) * 1000)
        if self.fd < 0 or 0 <= now - self.noted_at < PRECISION_MS:
            return
        self.noted_at = now
        try:
            if self.times_fd < 0:
                self.times_fd = os.open(self.times, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                self.times_size = os.fstat(self.times_fd).st_size
                if not self.times_size:
                    self._append_pair(os.fstat(self.fd).st_ino, PRECISION_MS)
            if self.times_size <= self.size + SPARE_BYTES:
                self._append_pair(self.size, now)
        except OSError:
            pass

    def _append_pair(self, first: int, second: int) -> None:
        written = os.write(self.times_fd, first.to_bytes(8, "little") + second.to_bytes(8, "little"))
        if written == 16:
            self.times_size += written
        else:  # a full disk
            os.ftruncate(self.times_fd, self.times_size)

    def _rotate(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            for number in range(self.keep - 1, -1, -1):
                for path in (self.path, self.times):
                    try:
                        os.replace(f"{path}.{number}" if number else path, f"{path}.{number + 1}")
                    except OSError:
                        pass
        if self.times_fd >= 0:
            os.close(self.times_fd)
            self.times_fd, self.noted_at = -1, 0
        self._open()
