"""Guards against jumping clocks and former leaders. If any guard is removed, the named violation
detects it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from moorage.common.model.status import AgentStatus
from moorage.manager.lifecycle.silence import (
    AgentContact,
    Mark,
    SilenceLimits,
    SilenceVerdict,
    SilenceWatch,
)
from moorage.manager.store.database.queries import SQL

from .database import Postgres
from .manager import LOST_GRACE_S, SUSPECT_AFTER_S
from .test_simulation import first_failure

Patch = pytest.MonkeyPatch


def change_sql(patch: Patch, name: str, part: str, replacement: str) -> None:
    assert part in SQL[name], "the statement has changed: adapt the mutation"
    patch.setitem(SQL, name, SQL[name].replace(part, replacement))


DATABASE_AGREES = "(i.new <> 'LOST' OR a.last_seen <= now() - make_interval(secs => i.silent_s))"


def lose_by_database_clock(patch: Patch) -> None:
    """Mutation: silence is computed as the age of the last report by the database's clock."""

    def look(
        self: SilenceWatch, contacts: Iterable[AgentContact], sent: float, received: float
    ) -> SilenceVerdict:
        marks = []
        for one in contacts:
            suspect = one.status is AgentStatus.SUSPECT
            new = AgentStatus.LOST if suspect else AgentStatus.SUSPECT
            marks.append(
                Mark(one.agent_id, one.last_seen, new, SUSPECT_AFTER_S + suspect * LOST_GRACE_S)
            )

        return SilenceVerdict(tuple(marks), {})

    patch.setattr(SilenceWatch, "look", look)
    change_sql(
        patch,
        "agents_mark_silent",
        DATABASE_AGREES,
        "a.last_seen <= now() - make_interval(secs => i.silent_s)",
    )


def lose_by_monotonic_clock(patch: Patch) -> None:
    """Mutation: a pause of the leader is counted as silence, and the database's clock is not
    read."""
    real = SilenceWatch.__init__

    def init(self: SilenceWatch, limits: SilenceLimits) -> None:
        real(self, replace(limits, longest_pause_s=1e9))

    patch.setattr(SilenceWatch, "__init__", init)
    change_sql(patch, "agents_mark_silent", DATABASE_AGREES, "TRUE")


def leave_deadlines(patch: Patch) -> None:
    change_sql(
        patch, "deadlines_move", "make_interval(secs => $1)", "make_interval(secs => 0 * $1)"
    )


def former_leader_moves_sessions(patch: Patch) -> None:
    condition = "(i.term IS NULL OR i.term IN (SELECT term FROM lease))"
    change_sql(patch, "session_transition", condition, "TRUE")


# The seeds to search: those in which the database's clock jumps, those in which monotonic clocks
# leap, or all. Each search starts shortly before a seed that finds the violation.
JUMPS = (4, 6)
LATER_JUMPS = (16, 6)
LEAPS = (1, 6)
RARE = (186, 1)
GUARDS: list[tuple[Callable[[Patch], None], str, tuple[int, int]]] = [
    (lose_by_database_clock, "s of silence", JUMPS),
    (lose_by_monotonic_clock, "s of silence", LEAPS),
    (leave_deadlines, "passed its deadline early", LATER_JUMPS),
    (former_leader_moves_sessions, "a leader of term", RARE),
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("remove", "violation", "seeds"), GUARDS, ids=[one[0].__name__ for one in GUARDS]
)
async def test_removed_guard_is_detected(
    postgres: Postgres,
    monkeypatch: Patch,
    remove: Callable[[Patch], None],
    violation: str,
    seeds: tuple[int, int],
) -> None:
    remove(monkeypatch)
    found = await first_failure(postgres, start=seeds[0], step=seeds[1])
    assert violation in found.splitlines()[-2], found
    print(f"\n{found.splitlines()[0]} {found.splitlines()[-2]}", flush=True)
