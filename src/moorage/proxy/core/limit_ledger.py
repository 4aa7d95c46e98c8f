"""Ledger of limits: what keys, projects and models have used of them in the last minute. Pure.

It works on a sequence of integers, which the workers of a proxy share. A use is counted in the cell of its
second, and a request is granted if the last 61 cells stay within the limit. An interval of 60 seconds touches
no more than 61 cells, so none contains more than the limit.

The sequence is a set-associative table: a subject has one set of slots, by its digest. If all are taken, it
replaces the one that was used longest ago.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext

from moorage.common.link.messages import RequestLimits
from moorage.common.link.proxy_messages import LimitNeed, LimitShare
from moorage.proxy.core.limits import WINDOW_S, Refusal, Room, Rooms, Subject, tightest

WORKERS = 32
_SPAN = WINDOW_S + 1
_RING = 1 + _SPAN  # the newest second, and a cell for each
_DIGEST, _TOUCHED, _SHARE, _SHARE_UNTIL, _UNMET = 0, 2, 3, 6, 7
_REQUESTS, _TOKENS, _RUNNING = 10, 10 + _RING, 10 + 2 * _RING
_SLOT = _RUNNING + WORKERS
_WAYS = 8
_HEADER, _PROXIES = 8, 0
_KNOWN = 100_000

REQUESTS, TOKENS, CONCURRENT = range(3)
_KINDS = ("requests", "tokens", "concurrent requests")

Lock = Callable[[Collection[int]], AbstractContextManager[object]]
"""Holds the sets with these numbers for this worker alone."""


def unlocked(sets: Collection[int]) -> AbstractContextManager[object]:
    """For a proxy of one process."""
    return nullcontext()


def cells_needed(sets: int) -> int:
    return _HEADER + sets * _WAYS * _SLOT


class Grant:
    """What a request holds at one subject."""

    __slots__ = ("limits", "second", "slot", "subject")

    def __init__(self, subject: str, slot: int, second: int, limits: RequestLimits) -> None:
        self.subject, self.slot, self.second, self.limits = subject, slot, second, limits


class Reservation:
    """A granted request. ``tokens``: those reserved."""

    __slots__ = ("grants", "rooms", "tokens")

    def __init__(self, grants: tuple[Grant, ...], tokens: int, rooms: Rooms) -> None:
        self.grants, self.tokens, self.rooms = grants, tokens, rooms


class Ledger:
    """``worker``: number of this worker, below ``WORKERS`` and of no other that runs. Times are monotonic
    seconds, of one clock for all workers."""

    def __init__(self, cells: MutableSequence[int], worker: int = 0, lock: Lock = unlocked) -> None:
        self._cells, self._worker, self._lock = cells, worker, lock
        self._sets = (len(cells) - _HEADER) // (_WAYS * _SLOT)
        self._digests: dict[str, tuple[int, int, int]] = {}

    @property
    def proxies(self) -> int:
        """How many proxies share the limits."""
        return max(1, self._cells[_PROXIES])

    @proxies.setter
    def proxies(self, count: int) -> None:
        self._cells[_PROXIES] = count

    def reserve(self, subjects: Sequence[Subject], tokens: int, now: float) -> Reservation | Refusal:
        """Take one request and ``tokens`` from every subject, or nothing."""
        second = int(now)
        with self._lock(self._sets_of(subjects)):
            slots = [self._slot(subject.name, second) for subject in subjects]
            refused = None
            rooms: tuple[list[Room], list[Room]] = ([], [])
            for slot, subject in zip(slots, subjects, strict=True):
                refusal = self._examine(slot, subject, tokens, second, rooms)
                if refusal is not None and (refused is None or _is_later(refusal, refused)):
                    refused = refusal
            left = Rooms(tightest(rooms[0]), tightest(rooms[1]))
            if refused is not None:
                subject, kind, retry_s = refused
                asked = tokens if kind == TOKENS else 1
                limit = _limits_of(subject.limits)[kind]
                assert limit is not None
                return Refusal(subject.name, _KINDS[kind], limit, asked, retry_s, left)
            grants = []
            for slot, subject in zip(slots, subjects, strict=True):
                at = self._take(slot, subject.limits, tokens, second)
                grants.append(Grant(subject.name, slot, at, subject.limits))
        return Reservation(tuple(grants), tokens, left)

    def settle(self, reservation: Reservation, tokens: int, now: float) -> None:
        """The request has ended, and used so many tokens. Call it once."""
        self._end(reservation, 0, tokens - reservation.tokens, now)

    def cancel(self, reservation: Reservation, now: float) -> None:
        """The request was not sent: all is as if it had never been. Call it instead of ``settle``."""
        self._end(reservation, -1, -reservation.tokens, now)

    def needs(self, subjects: Collection[Subject], now: float) -> tuple[LimitNeed, ...]:
        """What this proxy has used of the limits of these subjects, and what it may want next."""
        second, found = int(now), []
        for subject in subjects:
            with self._lock(self._sets_of([subject])):
                slot = self._find(subject.name)
                if slot is not None:
                    found.append(self._need(slot, subject, second))
        return tuple(found)

    def _need(self, slot: int, subject: Subject, second: int) -> LimitNeed:
        limits, used, wanted, held = _limits_of(subject.limits), [0] * 3, [0] * 3, [0] * 3
        for kind, limit in enumerate(limits):
            if limit is None:
                continue
            used[kind] = self._used(slot, kind, second)
            held[kind] = self._share(slot, kind, limit, second)
            # An eighth ahead, so that the next request need not wait for the next share.
            ahead = max(-(-limit // 8), self._cells[slot + _UNMET + kind])
            wanted[kind] = min(limit, used[kind] + ahead)
        return LimitNeed(subject.name, *(limit or 0 for limit in limits), *used, *wanted, *held)

    def adopt(self, share: LimitShare, until: float) -> None:
        """Grant no more than ``share`` until then."""
        with self._lock([self._digest(share.subject)[0]]):
            slot = self._find(share.subject)
            if slot is not None:
                self._cells[slot + _SHARE_UNTIL] = int(until)
                for kind, amount in enumerate((share.requests, share.tokens, share.concurrent)):
                    self._cells[slot + _SHARE + kind] = amount
                    self._cells[slot + _UNMET + kind] = 0

    def forget_worker(self, worker: int) -> None:
        """Worker ``worker`` has ended, and its requests with it."""
        for number in range(self._sets):
            with self._lock([number]):
                for slot in self._slots(number):
                    self._cells[slot + _RUNNING + worker] = 0

    def _examine(
        self,
        slot: int,
        subject: Subject,
        tokens: int,
        second: int,
        rooms: tuple[list[Room], list[Room]],
    ) -> tuple[Subject, int, int | None] | None:
        """The kind of limit that refuses the request, and for how long. Adds the room that is left after it
        to ``rooms``."""
        refused: tuple[Subject, int, int | None] | None = None
        for kind, limit in enumerate(_limits_of(subject.limits)):
            if limit is None:
                continue
            asked = tokens if kind == TOKENS else 1
            used, share = self._used(slot, kind, second), self._share(slot, kind, limit, second)
            fits = used + asked <= share
            if kind != CONCURRENT:
                reset_s = self._reset_s(slot, kind, second) if not fits else WINDOW_S
                rooms[kind].append(Room(limit, max(0, share - used - (asked if fits else 0)), reset_s))
            if not fits:
                self._note_unmet(slot, kind, asked)
                retry_s = None if asked > limit else self._retry_s(slot, kind, asked, share, second)
                if refused is None or _is_later((subject, kind, retry_s), refused):
                    refused = subject, kind, retry_s
        return refused

    def _take(self, slot: int, limits: RequestLimits, tokens: int, second: int) -> int:
        """Returns the second in which it counts: another worker may be a second ahead."""
        newest = max(self._advance(slot + ring, second) for ring in (_REQUESTS, _TOKENS))
        for kind, limit in enumerate(_limits_of(limits)):
            if limit is not None:
                self._add(slot, kind, tokens if kind == TOKENS else 1, newest)
        return newest

    def _end(self, reservation: Reservation, requests: int, tokens: int, now: float) -> None:
        grants, second = reservation.grants, int(now)
        with self._lock({self._digest(grant.subject)[0] for grant in grants}):
            for grant in grants:
                if self._find(grant.subject) != grant.slot:
                    continue  # replaced by another subject
                for kind, (limit, amount) in enumerate(
                    zip(_limits_of(grant.limits), (requests, tokens, -1), strict=True)
                ):
                    if limit is not None and amount:
                        # A refund goes to the second of the grant, an excess counts from now on.
                        self._add(grant.slot, kind, amount, grant.second if amount < 0 else second)

    def _add(self, slot: int, kind: int, amount: int, second: int) -> None:
        cells = self._cells
        if kind == CONCURRENT:
            cell = slot + _RUNNING + self._worker
            cells[cell] = max(0, cells[cell] + amount)
            return
        ring = slot + (_REQUESTS, _TOKENS)[kind]
        if self._advance(ring, second) - second < _SPAN:
            cells[ring + 1 + second % _SPAN] += amount

    def _used(self, slot: int, kind: int, second: int) -> int:
        if kind == CONCURRENT:
            return sum(self._cells[slot + _RUNNING : slot + _RUNNING + WORKERS])
        ring = slot + (_REQUESTS, _TOKENS)[kind]
        self._advance(ring, second)
        return max(0, sum(self._cells[ring + 1 : ring + _RING]))

    def _advance(self, ring: int, second: int) -> int:
        """Clear the cells of seconds that have passed, and return the newest second."""
        cells, newest = self._cells, self._cells[ring]
        if second <= newest:
            return newest
        for at in range(max(newest + 1, second - _SPAN + 1), second + 1):
            cells[ring + 1 + at % _SPAN] = 0
        cells[ring] = second
        return second

    def _share(self, slot: int, kind: int, limit: int, second: int) -> int:
        """While no manager tells the share of this proxy, all proxies have equal ones."""
        if second < self._cells[slot + _SHARE_UNTIL]:
            return min(limit, self._cells[slot + _SHARE + kind])
        return -(-limit // self.proxies)

    def _note_unmet(self, slot: int, kind: int, asked: int) -> None:
        cell = slot + _UNMET + kind
        self._cells[cell] = min(1 << 40, self._cells[cell] + asked)

    def _retry_s(self, slot: int, kind: int, asked: int, share: int, second: int) -> int:
        """Seconds until enough has left the window."""
        if kind == CONCURRENT or asked > share:
            return 1
        ring = slot + (_REQUESTS, _TOKENS)[kind]
        newest = self._cells[ring]
        excess = self._used(slot, kind, second) + asked - share
        for age in range(_SPAN - 1, -1, -1):
            excess -= self._cells[ring + 1 + (newest - age) % _SPAN]
            if excess <= 0:
                return max(1, _SPAN - age)
        return _SPAN

    def _reset_s(self, slot: int, kind: int, second: int) -> int:
        ring = slot + (_REQUESTS, _TOKENS)[kind]
        ages = (age for age in range(_SPAN) if self._cells[ring + 1 + (second - age) % _SPAN] > 0)
        return _SPAN - next(ages, _SPAN)

    def _slot(self, name: str, second: int) -> int:
        """The slot of a subject, a new one if it has none."""
        cells, slot = self._cells, self._find(name)
        if slot is None:
            number, high, low = self._digest(name)
            slot = min(self._slots(number), key=self._worth)
            for cell in range(slot, slot + _SLOT):
                cells[cell] = 0
            cells[slot + _DIGEST], cells[slot + _DIGEST + 1] = high, low
        cells[slot + _TOUCHED] = second
        return slot

    def _worth(self, slot: int) -> tuple[bool, bool, int]:
        """The slot that is worth least is replaced first: an empty one, one without a running request."""
        cells = self._cells
        return cells[slot] != 0, self._used(slot, CONCURRENT, 0) > 0, cells[slot + _TOUCHED]

    def _find(self, name: str) -> int | None:
        number, high, low = self._digest(name)
        cells = self._cells
        for slot in self._slots(number):
            if cells[slot] == high and cells[slot + 1] == low:
                return slot
        return None

    def _slots(self, number: int) -> range:
        first = _HEADER + number * _WAYS * _SLOT
        return range(first, first + _WAYS * _SLOT, _SLOT)

    def _sets_of(self, subjects: Collection[Subject]) -> set[int]:
        return {self._digest(subject.name)[0] for subject in subjects}

    def _digest(self, name: str) -> tuple[int, int, int]:
        """Number of the set, and two integers of 63 bits that identify the subject."""
        found = self._digests.get(name)
        if found is None:
            if len(self._digests) >= _KNOWN:
                self._digests.clear()
            digest = hashlib.blake2b(name.encode(), digest_size=24).digest()
            number, high, low = (int.from_bytes(digest[i : i + 8]) >> 1 for i in (0, 8, 16))
            found = self._digests[name] = number % self._sets, high, low
        return found


def _limits_of(limits: RequestLimits) -> tuple[int | None, int | None, int | None]:
    return limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests


def _is_later(one: tuple[Subject, int, int | None], other: tuple[Subject, int, int | None]) -> bool:
    """Whether a refusal lasts longer than another; None is for ever."""
    return other[2] is not None and (one[2] is None or one[2] > other[2])
