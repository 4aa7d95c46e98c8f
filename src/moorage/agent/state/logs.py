"""Kernel logs on disk: one folder per kernel with ``kernel.log`` and rotated ``kernel.log.1`` (newer) and on.

They stay after the kernel is forgotten, so that what went wrong can still be read; ``prune`` bounds them.
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
        """The end of the log, at most ``max_bytes`` as UTF-8, whole lines where possible, no NUL."""
        data = b""
        for path in reversed(self._files(kernel_id)):
            data = _end_of(path, max_bytes - len(data)) + data
            if len(data) >= max_bytes:
                break
        return tail_text(data, max_bytes)

    async def read(
        self, kernel_id: KernelId, tail_lines: int, follow: bool, lives: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """What is there, then with ``follow`` what comes, until ``lives()`` is false. Knows rotation."""
        path, offset = self._beginning(kernel_id, tail_lines)
        inode = -1
        while True:
            living = follow and lives()  # before reading: what came before the end is read
            while path is not None:
                try:
                    file = path.open("rb")
                except FileNotFoundError:
                    path, offset = self._beginning(kernel_id, 0)  # rotated away while we looked
                    continue
                with file:
                    inode = os.fstat(file.fileno()).st_ino
                    file.seek(offset)
                    while data := file.read(_CHUNK):
                        offset += len(data)
                        yield data
                newer = self._after(kernel_id, inode)
                if newer is None:
                    break
                path, offset = newer, 0
            if not living:
                return
            await asyncio.sleep(_FOLLOW_S)
            path = self._now_called(kernel_id, inode)
            if path is None:
                path, offset = self._beginning(kernel_id, 0)

    def _beginning(self, kernel_id: KernelId, tail_lines: int) -> tuple[Path | None, int]:
        files = self._files(kernel_id)
        if not files or not tail_lines:
            return (files[0] if files else None), 0
        wanted = tail_lines
        for path in reversed(files):
            offset, found = _lines_back(path, wanted)
            if found >= wanted:
                return path, offset
            wanted -= found
        return files[0], 0

    def _after(self, kernel_id: KernelId, inode: int) -> Path | None:
        """The next newer file, None if this is the newest. Its own is gone: the oldest there is."""
        files = self._files(kernel_id)
        inodes = [_inode(path) for path in files]
        if inode not in inodes:
            return files[0] if files else None
        at = inodes.index(inode) + 1
        return files[at] if at < len(files) else None

    def _now_called(self, kernel_id: KernelId, inode: int) -> Path | None:
        return next((path for path in self._files(kernel_id) if _inode(path) == inode), None)

    def prune(self, live: Collection[KernelId], keep: int = KEEP_KERNELS) -> None:
        """Delete all but the newest ``keep`` logs of kernels that are no more."""
        if not self.root.is_dir():
            return
        dead = [path for path in self.root.iterdir() if path.name not in live]
        for path in sorted(dead, key=_age, reverse=True)[keep:]:
            shutil.rmtree(path, ignore_errors=True)


def tail_text(data: bytes, max_bytes: int) -> str:
    """The last bytes of a log as ``Runtime.log_tail`` gives them. ``max_bytes`` or more: its beginning is
    missing."""
    if len(data) >= max_bytes:
        # Its first line is probably cut; so is a character.
        data = data.partition(b"\n")[2] or data
    text = data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode()[-max_bytes:].decode(errors="ignore")


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1


def _end_of(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except FileNotFoundError:
        return b""


def _lines_back(path: Path, wanted: int) -> tuple[int, int]:
    """Where the last ``wanted`` lines of a file begin, and how many lines were found on the way there."""
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
                    continue  # the newline that ends the last line begins none
                found += 1
                if found == wanted:
                    return position + at + 1, found
    return 0, found + (1 if end else 0)
