"""Spreading of agents and proxies over the managers of a database: who hands how many to whom. Pure.

Every manager decides this by itself, from counts that all of them see within a second. The decisions fit
together: what each hands over is its part of one assignment, by which every manager ends with its share and
nobody moves twice. Nothing moves while the counts differ by no more than ``TOLERANCE``, so what has been
spread stays where it is, although agents come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from math import ceil, inf

# Nothing moves while the largest and the smallest count differ by less than this part of the mean, or by 1.
TOLERANCE = 0.2
# At most so many are asked to move at one time, and so many seconds after they went the counts show it.
MOST_AT_ONCE, SETTLE_S = 100, 3.0
# How long those that were asked are waited for: they may be busy, and go when they are not.
WAIT_S = 30.0
# A manager that comes and goes, such as one that fails at its start, gets nobody before so many seconds.
STEADY_S = 5.0


def find_moves(own: str, counts: Mapping[str, int]) -> dict[str, int]:
    """How many ``own`` hands to each other manager, given how many each of them has."""
    if not is_uneven(counts):
        return {}
    base, extra = divmod(sum(counts.values()), len(counts))
    # Those with the most keep one more than the others, so that fewer move.
    order = sorted(counts, key=lambda manager: (-counts[manager], manager))
    above = {manager: counts[manager] - base - (rank < extra) for rank, manager in enumerate(order)}
    # All that move stand in one line: first by who hands them over, then by who gets them.
    given = _sections({manager: max(0, above[manager]) for manager in order})
    taken = _sections({manager: max(0, -above[manager]) for manager in order})
    start, end = given[own]
    moves = {manager: min(end, last) - max(start, first) for manager, (first, last) in taken.items()}
    return {manager: count for manager, count in moves.items() if count > 0}


def is_uneven(counts: Mapping[str, int]) -> bool:
    """Whether the counts differ by more than is tolerated."""
    if len(counts) < 2:
        return False
    mean = sum(counts.values()) / len(counts)
    return max(counts.values()) - min(counts.values()) > max(1, ceil(TOLERANCE * mean))


def _sections(sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return dict(zip(sizes, pairwise(accumulate(sizes.values(), initial=0)), strict=True))


class Spreading:
    """Decides when this manager hands over, of one kind of peers: not while another manager is new, while
    those that were asked last have not gone, or before the counts show it. All times are monotonic
    seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._settled_at = self._asked_at = -inf

    def decide(
        self, own: str, counts: Mapping[str, int], now: float, *, waits: bool = False
    ) -> dict[str, int]:
        """As ``find_moves``, at most ``MOST_AT_ONCE`` in all. ``waits``: some that were asked are here
        still."""
        self._since = {manager: self._since.get(manager, now) for manager in counts}
        if waits and now - self._asked_at < WAIT_S:
            self._settled_at = now + SETTLE_S
        if now < self._settled_at or any(now - since < STEADY_S for since in self._since.values()):
            return {}
        moves, left = find_moves(own, counts), MOST_AT_ONCE
        chosen = {}
        for manager, count in moves.items():
            if part := min(count, left):
                chosen[manager] = part
                left -= part
        if chosen:
            self._asked_at, self._settled_at = now, now + SETTLE_S
        return chosen
