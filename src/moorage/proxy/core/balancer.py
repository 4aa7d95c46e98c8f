"""Load balancer: picks a replica for the next request, and ejects replicas that do not answer.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId

FIRST_EJECTION_S = 5.0
LONGEST_EJECTION_S = 60.0

RandRange = Callable[[int], int]
"""``randrange(n)`` returns a random number in [0, n)."""


def pick_target(
    targets: Sequence[Target],
    in_flight: Mapping[KernelId, int],
    ejected: Mapping[KernelId, float],
    now: float,
    *,
    randrange: RandRange,
) -> Target | None:
    """Pick the less busy of two randomly chosen replicas. None if there are no replicas or all are
    draining.

    Two random choices are used instead of the least busy replica overall, because proxies with
    different counts would otherwise all send to the same replica (Mitzenmacher, "The Power of Two
    Choices in Randomized Load Balancing", 2001).

    ``ejected`` maps a kernel to the monotonic second at which its ejection ends. If all replicas
    are ejected, the one whose ejection ends first is tried, because it may have recovered.
    """
    if len(targets) == 1:
        return None if targets[0].draining else targets[0]

    candidates = [t for t in targets if not t.draining]
    if not candidates:
        return None

    if ejected:
        healthy = [t for t in candidates if ejected.get(t.kernel_id, now) <= now]
        if not healthy:
            return min(candidates, key=lambda t: ejected[t.kernel_id])

        candidates = healthy

    if len(candidates) == 1:
        return candidates[0]

    # Draw two distinct indexes: the second comes from a range shorter by one, and skips the first.
    first = randrange(len(candidates))
    second = randrange(len(candidates) - 1)
    if second >= first:
        second += 1

    a = candidates[first]
    b = candidates[second]
    return b if in_flight.get(b.kernel_id, 0) < in_flight.get(a.kernel_id, 0) else a


class Ejections:
    """Ejected replicas with the end of their ejection: replicas that could not be reached, and
    replicas that fail for everybody (``answering``).

    The first ejection lasts 5 s; each further one is twice as long, up to 60 s. After an ejection,
    the replica is on probation: only a response resets the duration.
    """

    def __init__(self) -> None:
        self.until: dict[KernelId, float] = {}
        self._durations_s: dict[KernelId, float] = {}

    def record_failure(self, kernel_id: KernelId, now: float) -> bool:
        """Eject a replica after a failed connection attempt.

        Returns False if it was already ejected, because simultaneous failures count as one.
        """
        if self.until.get(kernel_id, now) > now:
            return False

        duration = min(
            2 * self._durations_s.get(kernel_id, FIRST_EJECTION_S / 2), LONGEST_EJECTION_S
        )
        self._durations_s[kernel_id] = duration
        self.until[kernel_id] = now + duration
        return True

    def record_response(self, kernel_id: KernelId) -> bool:
        """Record a response. Returns whether the replica was ejected."""
        if self.until.pop(kernel_id, None) is None:
            return False
        del self._durations_s[kernel_id]
        return True

    def keep_only(self, kernel_ids: Container[KernelId]) -> None:
        """Forget replicas that are no longer in the table."""
        for kernel_id in [k for k in self.until if k not in kernel_ids]:
            self.record_response(kernel_id)
