"""Spreading of agents and proxies over the managers of a database: how many each manager hands over
to which others. Pure.

Every manager decides this on its own, from counts that all of them see within a second. The
decisions are consistent: each manager hands over its part of one common assignment, after which
every manager has its share. No peer moves twice. Nothing moves while the counts differ by no more
than ``TOLERANCE``, so peers stay where they are even as agents come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from math import ceil, inf

# Nothing moves while the largest and smallest counts differ by less than this share of the mean, or
# by 1.
TOLERANCE = 0.2
# Number of peers asked to move at first. While they move within ``QUICK_S``, the number doubles
# each time, up to the last value. When they take longer, because the managers or their nodes are
# busy, it halves, but not below the first value.
FIRST_AT_ONCE = 100
MOST_AT_ONCE = 400
QUICK_S = 5.0
# Seconds that it takes for the counts to show a move.
SETTLE_S = 3.0
# How long to wait for the peers that were asked, which may be busy and move later. If only a few
# stay, up to this share of them, the next peers are asked without waiting.
WAIT_S = 30.0
STRAGGLERS = 0.1
# A new manager receives no peers for this many seconds, because it may come and go, for example if
# it fails during startup.
STEADY_S = 5.0


def find_moves(own: str, counts: Mapping[str, int]) -> dict[str, int]:
    """The number of peers that ``own`` hands to each other manager, given all counts."""
    if not is_uneven(counts):
        return {}

    base, extra = divmod(sum(counts.values()), len(counts))
    # The managers with the most peers keep one more than the others, so that fewer move.
    order = sorted(counts, key=lambda manager: (-counts[manager], manager))
    above = {manager: counts[manager] - base - (rank < extra) for rank, manager in enumerate(order)}

    # All peers that move form one sequence: ordered first by the manager that hands them over, then
    # by the receiver.
    given = _sections({manager: max(0, above[manager]) for manager in order})
    taken = _sections({manager: max(0, -above[manager]) for manager in order})
    start, end = given[own]
    moves = {
        manager: min(end, last) - max(start, first) for manager, (first, last) in taken.items()
    }

    return {manager: count for manager, count in moves.items() if count > 0}


def is_uneven(counts: Mapping[str, int]) -> bool:
    """Whether the counts differ by more than the tolerance."""
    if len(counts) < 2:
        return False
    mean = sum(counts.values()) / len(counts)
    return max(counts.values()) - min(counts.values()) > max(1, ceil(TOLERANCE * mean))


def _sections(sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return dict(zip(sizes, pairwise(accumulate(sizes.values(), initial=0)), strict=True))


def next_at_once(asked: int, took_s: float) -> int:
    """The number of peers to ask next, after the last ones took ``took_s`` seconds to move."""
    if took_s <= QUICK_S:
        return min(2 * asked, MOST_AT_ONCE)
    return max(asked // 2, FIRST_AT_ONCE)


class Spreading:
    """Decides when this manager hands over peers of one kind: not while another manager is new,
    while the peers asked last have not moved, or before the counts show their move. All times are
    monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._settled_at = -inf
        self._asked_at = self._settled_at
        self._asked = 0
        self._at_once = FIRST_AT_ONCE

    def decide(
        self, own: str, counts: Mapping[str, int], now: float, *, left: int = 0
    ) -> dict[str, int]:
        """Like ``find_moves``, with a limit on the total. ``left``: number of peers asked last that
        are still here."""
        self._since = {manager: self._since.get(manager, now) for manager in counts}
        if left > STRAGGLERS * self._asked and now - self._asked_at < WAIT_S:
            self._settled_at = now + SETTLE_S
        if now < self._settled_at or any(now - since < STEADY_S for since in self._since.values()):
            return {}
        if self._asked:
            took_s = self._settled_at - SETTLE_S - self._asked_at
            self._at_once = next_at_once(self._at_once, took_s)

        moves = find_moves(own, counts)
        free = self._at_once
        chosen = {}
        for manager, count in moves.items():
            if part := min(count, free):
                chosen[manager] = part
                free -= part

        self._asked = sum(chosen.values())
        if chosen:
            self._asked_at = now
            self._settled_at = now + SETTLE_S
        else:
            self._at_once = FIRST_AT_ONCE

        return chosen
