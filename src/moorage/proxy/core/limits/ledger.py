"""Ledger of limits: usage by keys, projects and models in the last minute. Pure.

It works on a sequence of integers shared by a proxy's workers. Usage is counted in the cell of its
second, and a request is granted if the last 61 cells stay within the limit. An interval of 60
seconds touches no more than 61 cells, so no such interval exceeds the limit.

A budget has no window. Requests are granted while the rest by the manager's sum is larger than the
reservations of running requests plus the usage of ended requests that the manager may not have
counted yet. So a budget is exceeded by at most one request per proxy and by estimation errors.

The sequence is a set-associative table: a subject's digest selects one set of slots. If all of them
are taken, the subject replaces the least recently used one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext

from moorage.common.link.messages import RequestLimits
from moorage.common.link.proxy_messages import LimitNeed, LimitShare
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.limits.request_needs import (
    WINDOW_S,
    LimitExceeded,
    Room,
    Rooms,
    tightest,
)

WORKERS = 32
_SPAN = WINDOW_S + 1
_RING = 1 + _SPAN  # the newest second, and a cell for each second
_DIGEST = 0
_TOUCHED = 2
_SHARE = 3
_SHARE_UNTIL = 6
_UNMET = 7
_REQUESTS = 10
_TOKENS = 10 + _RING
_RUNNING = 10 + 2 * _RING
_SLOT = _RUNNING + WORKERS
_WAYS = 8
_HEADER = 8
_PROXIES = 0
_ROOMS_FROM = 1
_KNOWN = 100_000

# For a budget, this is the usage that is missing in the manager's sum for the share; for a limit,
# it is the share of requests. Older usage is included in that sum, because it is reported within
# seconds and summed up every 10 s, and a share is requested every 3 s.
_BEYOND = _SHARE
COUNTED_S = 30
BUDGET_RETRY_S = 5

REQUESTS, TOKENS, CONCURRENT = range(3)
_KINDS = ("requests", "tokens", "concurrent requests")

Lock = Callable[[Collection[int]], AbstractContextManager[object]]
"""Locks the sets with these numbers for this worker."""


def unlocked(sets: Collection[int]) -> AbstractContextManager[object]:
    """A no-op lock for a proxy with a single process."""
    return nullcontext()


def cells_needed(sets: int) -> int:
    return _HEADER + sets * _WAYS * _SLOT


class Grant:
    """A request's grant from one subject. ``amount``: the amount of a budget."""

    __slots__ = ("amount", "second", "slot", "subject")

    def __init__(self, subject: LimitSubject, slot: int, second: int, amount: int) -> None:
        self.subject = subject
        self.slot = slot
        self.second = second
        self.amount = amount

    @property
    def limits(self) -> RequestLimits:
        return self.subject.limits


class LedgerReservation:
    """A granted request. ``tokens``: its reserved tokens."""

    __slots__ = ("grants", "rooms", "tokens")

    def __init__(self, grants: tuple[Grant, ...], tokens: int, rooms: Rooms) -> None:
        self.grants = grants
        self.tokens = tokens
        self.rooms = rooms


class Ledger:
    """The ledger. ``worker``: this worker's number, below ``WORKERS`` and unique among running
    workers. Times are monotonic seconds of one clock for all workers."""

    def __init__(self, cells: MutableSequence[int], worker: int = 0, lock: Lock = unlocked) -> None:
        self._cells = cells
        self._worker = worker
        self._lock = lock
        self._sets = (len(cells) - _HEADER) // (_WAYS * _SLOT)
        self._digests: dict[str, tuple[int, int, int]] = {}

    @property
    def proxies(self) -> int:
        """The number of proxies that share the limits."""
        return max(1, self._cells[_PROXIES])

    def share_among(self, count: int) -> None:
        self._cells[_PROXIES] = count

    def reserve(
        self, subjects: Sequence[LimitSubject], tokens: int, now: float, prompt: int = 0
    ) -> LedgerReservation | LimitExceeded:
        """Take one request and ``tokens`` from every subject, or nothing. ``prompt``: the tokens in
        its prompt."""
        second = int(now)
        with self._lock(self._sets_of(subjects)):
            slots = [self._slot(subject.name, second) for subject in subjects]
            refused = None
            rooms: tuple[list[Room], list[Room]] = ([], [])
            for slot, subject in zip(slots, subjects, strict=True):
                if subject.unit:
                    refusal = self._examine_budget(slot, subject)
                else:
                    refusal = self._examine(
                        slot, subject, tokens=tokens, second=second, rooms=rooms
                    )

                if refusal is not None and (refused is None or _is_later(refusal, refused)):
                    refused = refusal

            left = Rooms(tightest(rooms[0]), tightest(rooms[1]))
            if refused is not None:
                subject, kind, retry_s = refused
                asked = tokens if kind == TOKENS else 1
                limit = _limits_of(subject.limits)[kind]
                assert limit is not None

                return LimitExceeded(
                    subject.name,
                    _KINDS[kind],
                    limit=limit,
                    asked=asked,
                    retry_s=retry_s,
                    rooms=left,
                    is_budget=bool(subject.unit),
                )

            grants = []
            for slot, subject in zip(slots, subjects, strict=True):
                amount = subject.amount(prompt, tokens - prompt) if subject.unit else 0
                if subject.unit:
                    at = second
                    self._cells[slot + _RUNNING + self._worker] += amount
                else:
                    at = self._take(slot, subject.limits, tokens, second)

                grants.append(Grant(subject, slot, at, amount))

        return LedgerReservation(tuple(grants), tokens, left)

    def settle(
        self, reservation: LedgerReservation, tokens: int, now: float, prompt: int = 0
    ) -> None:
        """Settle an ended request with the tokens it used. Call it once."""
        self._end(reservation, 0, tokens - reservation.tokens, now)
        self._end_of_budgets(reservation, (prompt, tokens - prompt), now)

    def cancel(self, reservation: LedgerReservation, now: float) -> None:
        """Undo the reservation of a request that was not sent. Call it instead of ``settle``."""
        self._end(reservation, -1, -reservation.tokens, now)
        self._end_of_budgets(reservation, None, now)

    def needs(self, subjects: Collection[LimitSubject], now: float) -> tuple[LimitNeed, ...]:
        """This proxy's use of the limits of these subjects, and its expected next needs."""
        second = int(now)
        found = []
        for subject in subjects:
            with self._lock(self._sets_of([subject])):
                slot = self._find(subject.name)
                if slot is not None:
                    found.append(self._need(slot, subject, second))
        return tuple(found)

    def _need(self, slot: int, subject: LimitSubject, second: int) -> LimitNeed:
        limits = _limits_of(subject.limits)
        used = [0] * 3
        wanted = [0] * 3
        held = [0] * 3
        for kind, limit in enumerate(limits):
            if limit is None:
                continue

            if subject.unit:
                used[kind], held[kind] = self._of_budget(slot, limit)
            else:
                used[kind] = self._used(slot, kind, second)
                held[kind] = self._share(slot, kind, limit, second)

            # An eighth more, so that the next request does not have to wait for the next share.
            ahead = max(-(-limit // 8), self._cells[slot + _UNMET + kind])
            wanted[kind] = min(limit, used[kind] + ahead)

        return LimitNeed(subject.name, *(limit or 0 for limit in limits), *used, *wanted, *held)

    def adopt(self, share: LimitShare, until: float) -> None:
        """Grant no more than ``share`` until the given time."""
        with self._lock([self._digest(share.subject)[0]]):
            slot = self._find(share.subject)
            if slot is not None:
                self._cells[slot + _SHARE_UNTIL] = int(until)
                for kind, amount in enumerate((share.requests, share.tokens, share.concurrent)):
                    self._cells[slot + _SHARE + kind] = amount
                    self._cells[slot + _UNMET + kind] = 0

    def hold_rooms(self, until: float) -> None:
        """Treat the rest of budgets as unknown until the given time, because this proxy's usage is
        reaching the manager late."""
        self._cells[_ROOMS_FROM] = max(self._cells[_ROOMS_FROM], int(until))

    def adopt_room(self, share: LimitShare, now: float) -> None:
        """Grant no more than ``share`` of the rest of a budget until there is a new share."""
        if now < self._cells[_ROOMS_FROM]:
            return

        with self._lock([self._digest(share.subject)[0]]):
            slot = self._find(share.subject)
            if slot is not None:
                cells = self._cells
                ring = slot + _TOKENS
                newest = self._advance(ring, int(now))
                recent = (cells[ring + 1 + (newest - age) % _SPAN] for age in range(COUNTED_S))
                cells[slot + _BEYOND] = sum(recent)
                cells[slot + _SHARE_UNTIL] = 1
                cells[slot + _SHARE + TOKENS] = share.tokens
                cells[slot + _UNMET + TOKENS] = 0

    def forget_worker(self, worker: int) -> None:
        """Forget the requests of a worker that has ended."""
        for number in range(self._sets):
            with self._lock([number]):
                for slot in self._slots(number):
                    self._cells[slot + _RUNNING + worker] = 0

    def _examine(
        self,
        slot: int,
        subject: LimitSubject,
        tokens: int,
        second: int,
        *,
        rooms: tuple[list[Room], list[Room]],
    ) -> tuple[LimitSubject, int, int | None] | None:
        """Return the kind of limit that refuses the request, and for how long. Adds the remaining
        room to ``rooms``."""
        refused: tuple[LimitSubject, int, int | None] | None = None
        for kind, limit in enumerate(_limits_of(subject.limits)):
            if limit is None:
                continue

            asked = tokens if kind == TOKENS else 1
            used = self._used(slot, kind, second)
            share = self._share(slot, kind, limit, second)
            fits = used + asked <= share
            if kind != CONCURRENT:
                reset_s = self._reset_s(slot, kind, second) if not fits else WINDOW_S
                rooms[kind].append(
                    Room(limit, max(0, share - used - (asked if fits else 0)), reset_s)
                )

            if not fits:
                self._note_unmet(slot, kind, asked)
                retry_s = (
                    None
                    if asked > limit
                    else self._retry_s(slot, kind, asked=asked, share=share, second=second)
                )
                if refused is None or _is_later((subject, kind, retry_s), refused):
                    refused = subject, kind, retry_s

        return refused

    def _examine_budget(
        self, slot: int, subject: LimitSubject
    ) -> tuple[LimitSubject, int, int | None] | None:
        """Examine a budget like ``_examine``. While anything is left, one more request is
        granted."""
        limit = subject.limits.tokens_per_minute
        assert limit is not None
        used, share = self._of_budget(slot, limit)
        if used < share:
            return None

        self._note_unmet(slot, TOKENS, 1)
        return subject, TOKENS, BUDGET_RETRY_S

    def _of_budget(self, slot: int, limit: int) -> tuple[int, int]:
        """The usage of a budget beyond the manager's sum, and the share of the rest."""
        cells = self._cells
        running = sum(cells[slot + _RUNNING : slot + _RUNNING + WORKERS])
        share = (
            cells[slot + _SHARE + TOKENS]
            if cells[slot + _SHARE_UNTIL]
            else -(-limit // self.proxies)
        )
        return running + cells[slot + _BEYOND], share

    def _end_of_budgets(
        self, reservation: LedgerReservation, used: tuple[int, int] | None, now: float
    ) -> None:
        """Settle the budgets. ``used``: tokens of the prompt and the answer; None if the request
        was not sent."""
        grants = [grant for grant in reservation.grants if grant.subject.unit]
        if not grants:
            return

        with self._lock({self._digest(grant.subject.name)[0] for grant in grants}):
            for grant in grants:
                if self._find(grant.subject.name) != grant.slot:
                    continue

                running = grant.slot + _RUNNING + self._worker
                self._cells[running] = max(0, self._cells[running] - grant.amount)
                if used is not None and (amount := grant.subject.amount(*used)):
                    self._add(grant.slot, TOKENS, amount, int(now))
                    self._cells[grant.slot + _BEYOND] += amount

    def _take(self, slot: int, limits: RequestLimits, tokens: int, second: int) -> int:
        """Take an amount. Returns the second in which it is counted, because another worker may be
        a second ahead."""
        newest = max(self._advance(slot + ring, second) for ring in (_REQUESTS, _TOKENS))
        for kind, limit in enumerate(_limits_of(limits)):
            if limit is not None:
                self._add(slot, kind, tokens if kind == TOKENS else 1, newest)
        return newest

    def _end(self, reservation: LedgerReservation, requests: int, tokens: int, now: float) -> None:
        grants = [grant for grant in reservation.grants if not grant.subject.unit]
        second = int(now)
        with self._lock({self._digest(grant.subject.name)[0] for grant in grants}):
            for grant in grants:
                if self._find(grant.subject.name) != grant.slot:
                    continue  # the slot now belongs to another subject

                for kind, (limit, amount) in enumerate(
                    zip(_limits_of(grant.limits), (requests, tokens, -1), strict=True)
                ):
                    if limit is not None and amount:
                        # A refund is counted in the second of the grant, an excess in the current
                        # one.
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
        """Clear the cells of past seconds, and return the newest second."""
        cells = self._cells
        newest = self._cells[ring]
        if second <= newest:
            return newest
        for at in range(max(newest + 1, second - _SPAN + 1), second + 1):
            cells[ring + 1 + at % _SPAN] = 0
        cells[ring] = second
        return second

    def _share(self, slot: int, kind: int, limit: int, second: int) -> int:
        """This proxy's share. While no manager provides it, all proxies have equal shares."""
        if second < self._cells[slot + _SHARE_UNTIL]:
            return min(limit, self._cells[slot + _SHARE + kind])
        return -(-limit // self.proxies)

    def _note_unmet(self, slot: int, kind: int, asked: int) -> None:
        cell = slot + _UNMET + kind
        self._cells[cell] = min(1 << 40, self._cells[cell] + asked)

    def _retry_s(self, slot: int, kind: int, asked: int, share: int, *, second: int) -> int:
        """Seconds until enough usage has left the window."""
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
        """A subject's slot, or a new one if it has none."""
        cells = self._cells
        slot = self._find(name)
        if slot is None:
            number, high, low = self._digest(name)
            slot = min(self._slots(number), key=self._worth)
            for cell in range(slot, slot + _SLOT):
                cells[cell] = 0

            cells[slot + _DIGEST] = high
            cells[slot + _DIGEST + 1] = low

        cells[slot + _TOUCHED] = second
        return slot

    def _worth(self, slot: int) -> tuple[bool, bool, int]:
        """The value of keeping a slot. The slot with the lowest value is replaced first: an empty
        one, then one without a running request."""
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

    def _sets_of(self, subjects: Collection[LimitSubject]) -> set[int]:
        return {self._digest(subject.name)[0] for subject in subjects}

    def _digest(self, name: str) -> tuple[int, int, int]:
        """The number of the set, and two 63-bit integers that identify the subject."""
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


def _is_later(
    refusal: tuple[LimitSubject, int, int | None], other: tuple[LimitSubject, int, int | None]
) -> bool:
    """Whether a refusal lasts longer than another. None means forever."""
    return other[2] is not None and (refusal[2] is None or refusal[2] > other[2])
