"""News of results, which a proxy's workers exchange about replicas that fail or answer again. Pure.

The news is in a ring in shared memory. Each worker writes its own results, and reads those of the
others before it decides, so that all workers agree, and keys that fail in two different workers are
counted together. A worker that has fallen behind by more than the ring continues with what is left,
because results recur.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from moorage.common.model.ids import KernelId
from moorage.proxy.core.limits.ledger import Lock, unlocked

FAILED: Final = 1
"""A request with a key failed at the replica."""
GONE: Final = 2
"""The replica cannot be reached, or will soon be unreachable."""
ANSWERED: Final = 3
"""The replica has answered after earlier requests failed."""
LENGTH: Final = 1024
# An entry's kind, worker, time, key and kernel.
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
    """The ring. ``memory``: its ``BYTES`` bytes; None if this proxy has only one process.
    ``worker``: this worker's number, unique among running workers. ``lock``: locks the ring, as set
    0."""

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
