"""What must always hold in the database, as checks that look at all of it, and what may be mended.

The seeded world, the tests with faults, the garbage collector and ``moorage db check`` use the same ones. A
check is one statement that gives the rows which break it. Only what follows from the rest of the database
is mended: a counter, and what a kernel holds that was seen to end. All else is shown, for a person to judge.
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

# A loop that works notices within a few seconds; a database or a manager may be away for a while.
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """``sql/check_<name>.sql`` called with ``args(grace_s)``; ``mendable``: by ``sql/mend_<name>.sql``.
    ``cheap``: its cost is that of what is live, however many sessions have ended."""

    name: str
    means: str
    args: Callable[[float], tuple[Any, ...]] = lambda _: ()
    mendable: bool = False
    cheap: bool = True


@dataclass(frozen=True, slots=True)
class Drift:
    """One row that breaks a check. ``mended``: it has been put right meanwhile."""

    check: str
    means: str
    subject: str
    detail: str
    mended: bool = False


_ENDED = (Status.TERMINATED, Status.ERROR)
_ON = (*(s for s in Status if s in STARTING), Status.RUNNING)
# A kernel may be ahead of its session (the session controller follows), never behind it.
GOES_WITH: Mapping[Status, tuple[Status, ...]] = {
    Status.PENDING: (Status.PENDING,),
    **{status: (*_ON, *_ENDED) for status in STARTING},
    Status.RUNNING: (Status.RUNNING, *_ENDED),
    Status.TERMINATING: (Status.TERMINATING, *_ENDED),
    Status.TERMINATED: _ENDED,
    Status.CANCELLED: (Status.CANCELLED,),
    Status.ERROR: (*_ENDED, Status.CANCELLED),  # given up while it waited for another try
}
_PAIRS = [(session, kernel) for session, kernels in GOES_WITH.items() for kernel in kernels]
_STEPS = [(old, event, new) for (old, event), new in TRANSITIONS.items()]

CHECKS = (
    Check("counters", "what is counted as used is what is held", mendable=True),
    Check("devices", "no slot is held above its capacity, and a live kernel holds what it was given"),
    Check(
        "history",
        "a history has no gap, only steps of the table, and ends where its session is",
        lambda _: ([old for old, _, _ in _STEPS], [e for _, e, _ in _STEPS], [new for _, _, new in _STEPS]),
        cheap=False,
    ),
    Check("exits", "a session that has not ended has a deadline, or a kernel, to move it", lambda s: (s,)),
    Check("ended", "no kernel is wanted by a session that has ended", cheap=False),
    Check("leaks", "a kernel that was seen to end holds nothing", lambda s: (s,), mendable=True),
    Check(
        "kernels",
        "a kernel's status goes with its session's, and only the newest attempt's is wanted",
        lambda _: ([session for session, _ in _PAIRS], [kernel for _, kernel in _PAIRS]),
        cheap=False,
    ),
)
assert set(GOES_WITH) == set(Status)
assert all(GOES_WITH[status] for status in TERMINAL)


class Checks:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db, self._notifier = db, notifier
        self._mend_line = db.line()

    async def check(self, *, grace_s: float = GRACE_S, cheap: bool = False) -> list[Drift]:
        """All that is wrong now; ``cheap``: only what is quickly looked at. Each check shows 1,000 rows at
        most. ``grace_s``: how long something may lag behind before it counts as wrong."""
        found = []
        for check in CHECKS:
            if check.cheap or not cheap:
                rows = await self._db.fetch(SQL[f"check_{check.name}"], *check.args(grace_s))
                found += [Drift(check.name, check.means, row["subject"], row["detail"]) for row in rows]
        return found

    async def mend(self, *, grace_s: float = GRACE_S, cheap: bool = False) -> list[Drift]:
        """As ``check``, and puts right what may be; those say so."""
        found = await self.check(grace_s=grace_s, cheap=cheap)
        mended: set[tuple[str, str]] = set()
        # Counters first: to free what is held counts down, and a counter that is too low would refuse it.
        for check in CHECKS:
            if check.mendable and any(drift.check == check.name for drift in found):
                rows = await self._mend_line.fetch(SQL[f"mend_{check.name}"], *check.args(grace_s))
                mended |= {(check.name, row["subject"]) for row in rows}
        if mended:
            self._notifier.notify([Topic.PENDING])
        return [
            Drift(d.check, d.means, d.subject, d.detail, mended=(d.check, d.subject) in mended) for d in found
        ]
