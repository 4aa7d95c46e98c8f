"""Kernel logs on disk: one directory per kernel with ``kernel.log`` and its rotated predecessors.

``kernel.log.1`` is the most recently rotated file. Logs outlive their kernels, so that a failure can still be
examined; ``prune`` bounds them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Collection
from pathlib import Path

from moorage.common.model.ids import KernelId

KEEP_KERNELS = 200
_CHUNK = 65_536
_FOLLOW_S = 0.1


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
        path, offset = self._find_start(kernel_id, tail_lines)
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
                        yield data
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
