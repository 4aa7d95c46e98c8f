"""Which replica gets the next request, and which ones rest after a failure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId

EJECT_FIRST_S = 5.0
EJECT_LONGEST_S = 60.0

Dice = Callable[[int], int]
"""``dice(n)`` is a number in [0, n)."""


def pick(
    targets: Sequence[Target],
    in_flight: Mapping[KernelId, int],
    ejected: Mapping[KernelId, float],
    now: float,
    dice: Dice,
) -> Target | None:
    """The less busy of two replicas drawn by ``dice``; None when every one is draining (or there is none).

    Two choices instead of the least of all: several proxies that see different counts would otherwise
    all run to the same replica. ``ejected`` maps a kernel to the monotonic second at which its rest
    ends. When all rest, the one whose rest ends first is tried: a guess beats a certain refusal.
    """
    able = [t for t in targets if not t.draining]
    if not able:
        return None
    if ejected:
        awake = [t for t in able if ejected.get(t.kernel_id, now) <= now]
        if not awake:
            return min(able, key=lambda t: ejected[t.kernel_id])
        able = awake
    if len(able) == 1:
        return able[0]
    first = dice(len(able))
    second = dice(len(able) - 1)
    if second >= first:
        second += 1
    a, b = able[first], able[second]
    return b if in_flight.get(b.kernel_id, 0) < in_flight.get(a.kernel_id, 0) else a


class Ejections:
    """Replicas that could not be reached rest for 5 s, then twice as long each time, at most 60 s.

    After the rest a replica is on probation: its streak ends only with an answer.
    """

    def __init__(self) -> None:
        self.until: dict[KernelId, float] = {}
        self._rest_s: dict[KernelId, float] = {}

    def failed(self, kernel_id: KernelId, now: float) -> bool:
        """Note a failed connect. False when the replica was resting already: requests that fail
        together are one failure, not many."""
        if self.until.get(kernel_id, now) > now:
            return False
        rest = min(2 * self._rest_s.get(kernel_id, EJECT_FIRST_S / 2), EJECT_LONGEST_S)
        self._rest_s[kernel_id] = rest
        self.until[kernel_id] = now + rest
        return True

    def answered(self, kernel_id: KernelId) -> None:
        if self.until.pop(kernel_id, None) is not None:
            del self._rest_s[kernel_id]

    def keep_only(self, kernel_ids: Iterable[KernelId]) -> None:
        """Forget replicas that are no longer in the table."""
        for gone in self.until.keys() - set(kernel_ids):
            self.answered(gone)
