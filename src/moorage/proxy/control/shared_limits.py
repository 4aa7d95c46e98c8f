"""Shared memory of the ledger of limits, and its locks, for the workers of a proxy.

A lock is one byte of the memory's file, held with ``fcntl``: the system releases it when its holder dies. A
worker holds one for some microseconds, so that waiting for it is no wait.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Collection, Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any, cast

from moorage.proxy.core.limit_ledger import Ledger, cells_needed

# Sets of the table: room for 4,096 keys, projects and models with limits that are in use in one minute.
SETS = 512
_BYTES = 8 * cells_needed(SETS)


def create() -> int:
    """A descriptor of new memory, which child processes may inherit."""
    fd = os.memfd_create("moorage-limits", 0)
    os.ftruncate(fd, _BYTES)
    return fd


def own_ledger() -> Ledger:
    """For a proxy of one process."""
    return Ledger(_cells(mmap.mmap(-1, _BYTES)))


def shared_ledger(fd: int, worker: int) -> Ledger:
    """For worker ``worker`` of a proxy. ``fd`` stays open: closing it would release the locks."""

    @contextmanager
    def locked(sets: Collection[int]) -> Iterator[None]:
        # In one order, so that no two workers wait for each other.
        held = sorted(sets)
        for number in held:
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, number)
        try:
            yield
        finally:
            for number in held:
                fcntl.lockf(fd, fcntl.LOCK_UN, 1, number)

    return Ledger(_cells(mmap.mmap(fd, _BYTES)), worker, locked)


def _cells(memory: mmap.mmap) -> MutableSequence[int]:
    cells: Any = memoryview(memory).cast("q")
    return cast("MutableSequence[int]", cells)
