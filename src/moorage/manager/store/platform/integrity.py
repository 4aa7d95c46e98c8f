"""Integrity checks of the database, and repair of derived state.

The simulation tests, the fault tests, garbage collection and ``moorage db check`` run the same
checks. A check is one statement that returns the rows that violate it. Only state that follows from
other rows is repaired: usage counters, and allocations of kernels that have ended. All other
violations are reported, for a person to resolve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from moorage.common.model.status import IN_ORDERS, STARTING, TERMINAL, Status, in_order
from moorage.manager.lifecycle.transitions import TRANSITIONS
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.sessions.lifecycle import NEWEST

# Loops catch up within seconds; this interval allows for a manager or a database that was down for
# a while.
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """``sql/check_<name>.sql``, called with ``args(grace_s)``. ``repairable``:
    ``sql/repair_<name>.sql`` repairs what it finds. ``of``: the kind of rows to which one more
    argument can restrict it; None if it always checks everything, including ended sessions."""

    name: str
    means: str
    args: Callable[[float], tuple[Any, ...]] = lambda _: ()
    repairable: bool = False
    of: Literal["agents", "sessions"] | None = None

    def all_args(self, grace_s: float, part: Sequence[str] | None) -> tuple[Any, ...]:
        return (*self.args(grace_s), part) if self.of is not None else self.args(grace_s)


@dataclass(frozen=True, slots=True)
class Drift:
    """A row that violates a check. ``repaired``: it has been corrected."""

    check: str
    means: str
    subject: str
    detail: str
    repaired: bool = False


_ENDED = (Status.TERMINATED, Status.ERROR)
_ACTIVE = in_order(IN_ORDERS)
# Kernel statuses that are consistent with each session status. A kernel may be ahead of its
# session, which the session controller updates later, but never behind it.
KERNEL_STATUSES: Mapping[Status, tuple[Status, ...]] = {
    Status.PENDING: (Status.PENDING,),
    **{status: (*_ACTIVE, *_ENDED) for status in STARTING},
    Status.RUNNING: (Status.RUNNING, *_ENDED),
    Status.TERMINATING: (Status.TERMINATING, *_ENDED),
    Status.TERMINATED: _ENDED,
    Status.CANCELLED: (Status.CANCELLED,),
    # With CANCELLED, the session gave up while waiting for another attempt. With TERMINATING, the
    # kernel's agent is LOST.
    Status.ERROR: (*_ENDED, Status.CANCELLED, Status.TERMINATING),
}
_PAIRS = [(session, kernel) for session, kernels in KERNEL_STATUSES.items() for kernel in kernels]
_STEPS = [(old, event, new) for (old, event), new in TRANSITIONS.items()]

CHECKS = (
    Check("counters", "usage counters equal the sum of allocations", repairable=True, of="agents"),
    Check(
        "devices",
        "no slot is allocated above its capacity, and a live kernel has its allocations",
        of="agents",
    ),
    Check(
        "history",
        "a history has no gaps, only transitions of the table, and ends in its session's status",
        lambda _: (
            [old for old, _, _ in _STEPS],
            [e for _, e, _ in _STEPS],
            [new for _, _, new in _STEPS],
        ),
    ),
    Check("stuck", "a live session has a deadline or a live kernel", lambda s: (s,), of="sessions"),
    Check("orphans", "an ended session has no live kernel"),
    Check("unknown", "an agent runs no kernels that the database does not know", of="agents"),
    Check(
        "leaks",
        "a kernel that has ended has no allocations",
        lambda s: (s,),
        repairable=True,
        of="agents",
    ),
    Check(
        "kernels",
        "a kernel's status is consistent with its session's, and only the newest attempt has live "
        "kernels",
        lambda _: ([session for session, _ in _PAIRS], [kernel for _, kernel in _PAIRS]),
    ),
)
assert set(KERNEL_STATUSES) == set(Status)
assert all(KERNEL_STATUSES[status] for status in TERMINAL)


@dataclass(frozen=True, slots=True)
class Part:
    """Live rows that are checked together, and the ``cursor`` of the next part; None if this is the
    last part."""

    of: Literal["agents", "sessions"]
    ids: list[str]
    cursor: Any | None


class IntegrityStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def agents(self, after: Any | None, count: int) -> Part:
        """``count`` agents after those of the part with this cursor; None means the first ones."""
        ids = [
            row["id"] for row in await self._db.fetch(SQL["integrity_agents"], after or "", count)
        ]
        return Part("agents", ids, ids[-1] if len(ids) == count else None)

    async def sessions(self, after: Any | None, count: int) -> Part:
        """Like ``agents``, for ``count`` live sessions."""
        rows = await self._db.fetch(SQL["integrity_sessions"], *(after or NEWEST), count)
        cursor = (rows[-1]["created_at"], rows[-1]["id"]) if len(rows) == count else None
        return Part("sessions", [row["id"] for row in rows], cursor)

    async def check(self, part: Part | None = None, *, grace_s: float = GRACE_S) -> list[Drift]:
        """All violations, or those in ``part``. Each check returns at most 1,000 rows. ``grace_s``:
        how long state may lag before it counts as a violation."""
        found = []
        for check in _checks(part):
            args = check.all_args(grace_s, part.ids if part is not None else None)
            rows = await self._db.fetch(SQL[f"check_{check.name}"], *args)
            found += [Drift(check.name, check.means, row["subject"], row["detail"]) for row in rows]
        return found

    async def repair(self, part: Part | None = None, *, grace_s: float = GRACE_S) -> list[Drift]:
        """Like ``check``; also repairs repairable violations and marks them."""
        found = await self.check(part, grace_s=grace_s)
        repaired: set[tuple[str, str]] = set()

        # Counters come first, because freeing an allocation decrements them, and a counter that is
        # too low would prevent that.
        for check in _checks(part):
            if check.repairable and any(drift.check == check.name for drift in found):
                args = check.all_args(grace_s, part.ids if part is not None else None)
                rows = await self._db.fetch(SQL[f"repair_{check.name}"], *args)
                repaired |= {(check.name, row["subject"]) for row in rows}

        if repaired:
            self._notifier.notify([Topic.SCHEDULE])

        return [
            Drift(d.check, d.means, d.subject, d.detail, repaired=(d.check, d.subject) in repaired)
            for d in found
        ]


def _checks(part: Part | None) -> list[Check]:
    return [check for check in CHECKS if part is None or check.of == part.of]
