"""The planner cache: the differences between snapshots, which it applies to the planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.manager.loops.scheduler import waits_s
from moorage.manager.scheduling import AgentState, Pending, Policy, Snapshot
from moorage.manager.scheduling.core.model import AgentChanges, PendingChanges, Quota
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache

FULL = AgentState(
    AgentId("a"),
    frozenset({"process"}),
    frozenset({"custom"}),
    free={"cpu": 0},
    capacity={"cpu": 4000},
)
ROOMY = replace(FULL, free={"cpu": 4000})
POLICY = Policy(hol="backfill")


def pending(number: int) -> Pending:
    name = f"s{number}"
    return Pending(
        SessionId(name),
        KernelId(f"k{number}"),
        revision=1,
        priority=10,
        created=number,
        retries=0,
        runtime="process",
        engine="custom",
        slots={"cpu": 2000},
        user="ann",
    )


def snapshot(*waiting: int, agent: AgentState = FULL, quotas: tuple[Quota, ...] = ()) -> Snapshot:
    return Snapshot("g", (agent,), tuple(pending(n) for n in waiting), quotas)


def placed(planners: PlannerCache, now: Snapshot, policy: Policy = POLICY) -> list[str]:
    return [place.session_id for place in planners.plan(now, policy, 1).places]


def test_returned_capacity_is_allocated() -> None:
    planners = PlannerCache()
    assert placed(planners, snapshot(1, 2, 3)) == []
    assert placed(planners, snapshot(1, 2, 3, agent=ROOMY)) == ["s1", "s2"]
    assert placed(planners, snapshot(3)) == [], (
        "the next snapshot has neither the placed sessions nor the free capacity"
    )


def test_sessions_that_are_gone_are_not_placed() -> None:
    planners = PlannerCache()
    assert placed(planners, snapshot(1, 2, 3)) == []
    assert placed(planners, snapshot(2, 4, agent=ROOMY)) == ["s2", "s4"]


def test_place_that_was_not_committed_is_planned_again() -> None:
    planners = PlannerCache()
    for _ in range(3):
        assert placed(planners, snapshot(1, agent=ROOMY)) == ["s1"]


def test_changed_policy_applies_at_once() -> None:
    planners = PlannerCache()
    assert placed(planners, snapshot(1, 2, agent=ROOMY)) == ["s1", "s2"]
    lifo = replace(POLICY, strategy="lifo")
    assert placed(planners, snapshot(1, 2, agent=ROOMY), lifo) == ["s2", "s1"]


def test_removed_quota_limits_nobody() -> None:
    planners = PlannerCache()
    none = (Quota("user", "ann", {}, {}, 0, 0),)
    assert placed(planners, snapshot(1, agent=ROOMY, quotas=none)) == []
    assert placed(planners, snapshot(1, agent=ROOMY)) == ["s1"]


def test_clock_set_back_has_no_effect() -> None:
    planners = PlannerCache()
    later = replace(pending(1), not_before=50)
    world = Snapshot("g", (ROOMY,), (later,))
    assert planners.plan(world, POLICY, 40).places == ()
    assert len(planners.plan(world, POLICY, 60).places) == 1
    assert len(planners.plan(world, POLICY, 20).places) == 1


@pytest.mark.parametrize(
    ("number", "changed", "found"),
    [(2, (ROOMY,), ["s1"]), (2, (), []), (3, (), ["s1"])],
    ids=["announced", "not announced", "after announcements that another snapshot had"],
)
def test_agents_are_compared_as_far_as_their_changes_are_not_announced(
    number: int, changed: tuple[AgentState, ...], found: list[str]
) -> None:
    planners = PlannerCache()
    assert placed(planners, replace(snapshot(1), agent_changes=AgentChanges(1, (), ()))) == []
    later = replace(snapshot(1, agent=ROOMY), agent_changes=AgentChanges(number, changed, ()))
    assert placed(planners, later) == found


def test_number_of_examined_sessions() -> None:
    """It determines whether a plan is made in a thread."""
    planners = PlannerCache()
    lifo = replace(POLICY, strategy="lifo")
    first = replace(snapshot(*range(50)), changes=PendingChanges(1, (), ()))
    assert planners.examined(first, POLICY) == 50, "a new leader"
    planners.plan(first, POLICY, 1)
    later = replace(snapshot(*range(51)), changes=PendingChanges(2, (pending(50),), ()))
    assert planners.examined(later, POLICY) == 1
    assert planners.examined(replace(later, changes=PendingChanges(3, (), ())), POLICY) == 51, (
        "missed changes"
    )
    assert planners.examined(later, lifo) == 51, "another policy"
    planners.plan(first, lifo, 1)
    assert planners.examined(later, lifo) == 51, "it is planned from scratch each time"


@pytest.mark.parametrize("again", [False, True])
def test_holds_are_repeated_only_after_forget(again: bool) -> None:
    planners = PlannerCache()
    assert {hold.session_id for hold in planners.plan(snapshot(1, 2), POLICY, 1).holds} == {
        "s1",
        "s2",
    }
    if again:
        planners.forget("g")
    held = {hold.session_id for hold in planners.plan(snapshot(1, 2), POLICY, 2).holds}
    assert ("s2" in held) is again


class Queue(dict[SessionId, Pending]):
    """Sessions are looked up among fifty thousand, which are never iterated over."""

    def __iter__(self) -> Iterator[SessionId]:
        raise AssertionError("a pass looks at all pending sessions")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_waits_of_placed_sessions_are_looked_up() -> None:
    planners = PlannerCache()
    made = planners.plan(snapshot(1, 2, 3, agent=ROOMY), POLICY, 1)
    assert planners.pending("g").keys() == {"s1", "s2", "s3"}, "also those that were placed"
    waits = waits_s(Queue(planners.pending("g")), made, 5_000_000)
    assert waits == [
        (5_000_000 - planners.pending("g")[place.session_id].created) / 1e6 for place in made.places
    ]
    assert len(waits) == 2
