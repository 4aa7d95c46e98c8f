"""Log of one kernel as its supervisor writes it, rotated by size. Imported by the shim (``shim.py``)."""

from __future__ import annotations

import os


class Log:
    """Appends to ``kernel.log`` and renames it to ``kernel.log.1``, ``.2`` ... at ``max_bytes``."""

    def __init__(self, folder: str, max_bytes: int, keep: int) -> None:
        self.path, self.max_bytes, self.keep = f"{folder}/kernel.log", max_bytes, keep
        self.fd = self.size = -1
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
        try:
            self.size += os.write(self.fd, data)
        except OSError:
            pass

    def _rotate(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            for number in range(self.keep - 1, -1, -1):
                try:
                    os.replace(f"{self.path}.{number}" if number else self.path, f"{self.path}.{number + 1}")
                except OSError:
                    pass
        self._open()
