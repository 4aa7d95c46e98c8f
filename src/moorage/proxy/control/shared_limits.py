"""Shared memory of the workers of a proxy, and its locks: the ledger of limits, the homes of
responses, and the news of results.

A lock is one byte of the memory's file, held with ``fcntl``, so the operating system releases it
when its holder dies. A worker holds a lock for a few microseconds, so waiting for one is
negligible.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Collection, Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any, cast

from moorage.proxy.core import result_news
from moorage.proxy.core.limits.ledger import Ledger, Lock, cells_needed
from moorage.proxy.core.response_homes import ResponseHomes, bytes_needed

# Sets of the ledger, with room for 4,096 limited keys, projects and models that are used in one
# minute.
SETS = 512
_LEDGER_BYTES = 8 * cells_needed(SETS)
# Room for 16,384 responses in 4 MB. Unused memory costs nothing.
_HOME_SETS = 2048
_HOMES_END = _LEDGER_BYTES + bytes_needed(_HOME_SETS)
_BYTES = _HOMES_END + result_news.BYTES


def create() -> int:
    """Create memory and return its descriptor, which child processes may inherit."""
    fd = os.memfd_create("moorage-limits", 0)
    os.ftruncate(fd, _BYTES)
    return fd


class SharedMemory:
    """The memory. ``fd``: from ``create``; it stays open, because closing it would release the
    locks. None means that this proxy has only one process."""

    def __init__(self, fd: int | None = None, worker: int = 0) -> None:
        if fd is not None and os.fstat(fd).st_size < _BYTES:
            os.ftruncate(fd, _BYTES)  # created by a parent of the previous release

        memory = memoryview(mmap.mmap(-1 if fd is None else fd, _BYTES))
        cells = _cells(memory[:_LEDGER_BYTES])
        if fd is None:
            self.ledger = Ledger(cells)
            self.homes = ResponseHomes(memory[_LEDGER_BYTES:_HOMES_END])
            self.results = result_news.ResultNews()
        else:
            self.ledger = Ledger(cells, worker, _locks(fd, 0))
            self.homes = ResponseHomes(memory[_LEDGER_BYTES:_HOMES_END], _locks(fd, SETS))
            lock = _locks(fd, SETS + _HOME_SETS)
            self.results = result_news.ResultNews(memory[_HOMES_END:], worker, lock)


def _locks(fd: int, first: int) -> Lock:
    """Locks for sets; ``first`` is the byte of the first set."""

    @contextmanager
    def locked(sets: Collection[int]) -> Iterator[None]:
        # Taken in order, so that two workers never wait for each other.
        held = sorted(sets)
        for number in held:
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, first + number)
        try:
            yield
        finally:
            for number in held:
                fcntl.lockf(fd, fcntl.LOCK_UN, 1, first + number)

    return locked


def _cells(memory: memoryview) -> MutableSequence[int]:
    cells: Any = memory.cast("q")
    return cast("MutableSequence[int]", cells)
