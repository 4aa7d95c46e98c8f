"""Integrity checks of the database, and repair of derived state.

The simulation tests, the fault tests, garbage collection and ``moorage db check`` run the same checks. A
check is one statement that returns the rows that violate it. Only state that follows from other rows is
repaired: usage counters, and allocations of kernels that have ended. All other violations are reported for a
person to resolve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.common.model.status import STARTING, TERMINAL, Status
from moorage.manager.lifecycle.transitions import TRANSITIONS
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL

# Loops catch up within seconds; this allows for a manager or a database that was down for a while.
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """``sql/check_<name>.sql`` called with ``args(grace_s)``; ``repairable``: by ``sql/repair_<name>.sql``.
    ``cheap``: its cost grows with live sessions only, not with those that have ended."""

    name: str
    means: str
    args: Callable[[float], tuple[Any, ...]] = lambda _: ()
    repairable: bool = False
    cheap: bool = True


@dataclass(frozen=True, slots=True)
class Drift:
    """One row that violates a check. ``repaired``: it has been corrected."""

    check: str
    means: str
    subject: str
    detail: str
    repaired: bool = False


_ENDED = (Status.TERMINATED, Status.ERROR)
_ACTIVE = (*(s for s in Status if s in STARTING), Status.RUNNING)
# Kernel statuses that are consistent with each session status. A kernel may be ahead of its session, which
# the session controller moves later, but never behind it.
KERNEL_STATUSES: Mapping[Status, tuple[Status, ...]] = {
    Status.PENDING: (Status.PENDING,),
    **{status: (*_ACTIVE, *_ENDED) for status in STARTING},
    Status.RUNNING: (Status.RUNNING, *_ENDED),
    Status.TERMINATING: (Status.TERMINATING, *_ENDED),
    Status.TERMINATED: _ENDED,
    Status.CANCELLED: (Status.CANCELLED,),
    # CANCELLED: it gave up while waiting for another attempt. TERMINATING: its agent is LOST.
    Status.ERROR: (*_ENDED, Status.CANCELLED, Status.TERMINATING),
}
_PAIRS = [(session, kernel) for session, kernels in KERNEL_STATUSES.items() for kernel in kernels]
_STEPS = [(old, event, new) for (old, event), new in TRANSITIONS.items()]

CHECKS = (
    Check("counters", "usage counters equal the sum of allocations", repairable=True),
    Check("devices", "no slot is allocated above its capacity, and a live kernel has its allocations"),
    Check(
        "history",
        "a history has no gaps, only transitions of the table, and ends in its session's status",
        lambda _: ([old for old, _, _ in _STEPS], [e for _, e, _ in _STEPS], [new for _, _, new in _STEPS]),
        cheap=False,
    ),
    Check("stuck", "a live session has a deadline or a live kernel", lambda s: (s,)),
    Check("orphans", "an ended session has no live kernel", cheap=False),
    Check("unknown", "an agent runs no kernels that the database does not know"),
    Check("leaks", "a kernel that has ended has no allocations", lambda s: (s,), repairable=True),
    Check(
        "kernels",
        "a kernel's status is consistent with its session's, and only the newest attempt has live kernels",
        lambda _: ([session for session, _ in _PAIRS], [kernel for _, kernel in _PAIRS]),
        cheap=False,
    ),
)
assert set(KERNEL_STATUSES) == set(Status)
assert all(KERNEL_STATUSES[status] for status in TERMINAL)


class IntegrityStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db, self._notifier = db, notifier
        self._connection = db.dedicated_connection()

    async def check(self, *, grace_s: float = GRACE_S, cheap: bool = False) -> list[Drift]:
        """All violations; ``cheap``: of the cheap checks only. Each check returns at most 1,000 rows.
        ``grace_s``: how long state may lag behind before it counts as a violation."""
        found = []
        for check in CHECKS:
            if check.cheap or not cheap:
                rows = await self._db.fetch(SQL[f"check_{check.name}"], *check.args(grace_s))
                found += [Drift(check.name, check.means, row["subject"], row["detail"]) for row in rows]
        return found

    async def repair(self, *, grace_s: float = GRACE_S, cheap: bool = False) -> list[Drift]:
        """As ``check``; also repairs what is repairable and marks it."""
        found = await self.check(grace_s=grace_s, cheap=cheap)
        repaired: set[tuple[str, str]] = set()
        # Counters first: freeing an allocation decrements them, and a counter that is too low would prevent
        # that.
        for check in CHECKS:
            if check.repairable and any(drift.check == check.name for drift in found):
                rows = await self._connection.fetch(SQL[f"repair_{check.name}"], *check.args(grace_s))
                repaired |= {(check.name, row["subject"]) for row in rows}
        if repaired:
            self._notifier.notify([Topic.SCHEDULE])
        return [
            Drift(d.check, d.means, d.subject, d.detail, repaired=(d.check, d.subject) in repaired)
            for d in found
        ]
