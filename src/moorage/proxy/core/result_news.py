"""News of results, which the workers of a proxy exchange about replicas that fail or answer again.
Pure.

The news are in a ring in shared memory. Each worker writes its results, and reads those of the
others before it decides by its own, so that all workers agree, and two keys that fail at two
workers count as two. A worker that has not read for a whole ring continues with the rest, because
results recur.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from moorage.common.model.ids import KernelId
from moorage.proxy.core.limits.ledger import Lock, unlocked

FAILED: Final = 1
"""A request with a key failed there."""
GONE: Final = 2
"""The replica cannot be reached, or soon cannot."""
ANSWERED: Final = 3
"""The replica has answered, after others failed."""
LENGTH: Final = 1024
# Kind, worker, time, key and kernel of an entry.
_NEWS: Final = struct.Struct("<BBd64s64s")
_HEAD_BYTES: Final = 8
BYTES: Final = _HEAD_BYTES + LENGTH * _NEWS.size


class News(NamedTuple):
    """One result. ``at``: monotonic seconds."""

    kind: int
    kernel_id: KernelId
    key: str
    at: float


class ResultNews:
    """The ring. ``memory``: of ``BYTES``; None: this proxy has one process. ``worker``: number of
    this worker, unique among running ones. ``lock``: of the ring, its set 0."""

    def __init__(
        self, memory: memoryview | None = None, worker: int = 0, lock: Lock = unlocked
    ) -> None:
        self._memory = memory
        self._worker = worker
        self._lock = lock
        self._count = None if memory is None else memory[:_HEAD_BYTES].cast("q")
        self._read = 0 if self._count is None else self._count[0]

    def tell(self, kind: int, kernel_id: KernelId, key: str, at: float) -> None:
        memory = self._memory
        count = self._count
        if memory is None or count is None:
            return

        named = kernel_id.encode()
        of = key.encode()
        if len(named) > 64 or len(of) > 64:
            return

        with self._lock((0,)):
            place = _HEAD_BYTES + count[0] % LENGTH * _NEWS.size
            _NEWS.pack_into(memory, place, kind, self._worker, at, of, named)
            count[0] += 1

    def read(self) -> list[News]:
        """Read the other workers' news since the last call."""
        memory = self._memory
        count = self._count
        if memory is None or count is None or count[0] == self._read:
            return []

        found = []
        with self._lock((0,)):
            for number in range(max(self._read, count[0] - LENGTH), count[0]):
                place = _HEAD_BYTES + number % LENGTH * _NEWS.size
                kind, worker, at, key, kernel_id = _NEWS.unpack_from(memory, place)
                if worker != self._worker:
                    named = KernelId(kernel_id.rstrip(b"\0").decode())
                    found.append(News(kind, named, key.rstrip(b"\0").decode(), at))

            self._read = count[0]

        return found
