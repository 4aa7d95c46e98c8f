"""Scenarios by id: start conditions and quotas (F), preemption (G), and custom selectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from planner_builders import NOW, cluster, hold, make_plan, node, placements, session

from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, Pending
from moorage.manager.scheduling.core.messages import unmet_message
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.core.results import RefusalKind


def limits(scope: str = "user", name: str = "ann", **fields: Any) -> Quota:
    return Quota(scope, name, **fields)  # type: ignore[arg-type]


CPU10 = {"limits": {"cpu": 10_000}}


RESETS = "(resets 2026-12-01 UTC)"


def hours(limit: float, used: float, scope: str = "user", name: str = "ann") -> Quota:
    ends = 1_796_083_200_000_000  # 2026-12-01
    of_month = {"node_seconds": round(limit * 3600), "node_seconds_used": round(used * 3600)}
    return limits(scope, name, **of_month, month_ends=ends)


@pytest.mark.parametrize(
    ("quotas", "item", "messages"),
    [
        pytest.param(
            [limits(**CPU10, used={"cpu": 7000})], session("s", 4),
            ["user ann: cpu: used 7 + requested 4 > limit 10 (over by 1)"], id="F1",
        ),
        pytest.param([limits(**CPU10, used={"cpu": 2000})], session("s", 2), [], id="F2"),
        pytest.param([], session("s", 40), [], id="F3"),
        pytest.param(
            [limits(sessions=3, running=3)], session("s"), ["user ann: 3 concurrent sessions of 3"], id="F4"
        ),
        pytest.param([limits(sessions=5, running=3)], session("s"), [], id="F5"),
        pytest.param(
            [limits(**CPU10, used={"cpu": 9000}, sessions=3, running=3), hours(1, 3600, "project", "p")],
            session("s", 4, session_type="system", node_seconds=60), [], id="system-no-limit",
        ),
        pytest.param(
            [limits(limits={"system-sessions": 2}, used={"system-sessions": 2})],
            session("s", session_type="system"), ["user ann: 2 system sessions of 2"], id="system",
        ),
        pytest.param(
            [limits(limits={"system-sessions": 0})], session("s"), [], id="system-others",
        ),
        pytest.param([limits(sessions=None, running=1000)], session("s"), [], id="F8"),
        pytest.param([limits(sessions=0)], session("s"), [
            "user ann: 0 concurrent sessions of 0; it never starts under this limit"
        ], id="F9"),
        pytest.param(
            [limits("project", "p", **CPU10, used={"cpu": 7000})], session("s", 4),
            ["project p: cpu: used 7 + requested 4 > limit 10 (over by 1)"], id="F10",
        ),
        pytest.param(
            [limits("group", "g", **CPU10, used={"cpu": 7000})], session("s", 4),
            ["group g: cpu: used 7 + requested 4 > limit 10 (over by 1)"], id="F11",
        ),
        pytest.param(
            [
                limits(**CPU10, used={"cpu": 7000}),
                limits("project", "p", **CPU10, used={"cpu": 8000}),
                limits("group", "g", **CPU10, used={"cpu": 9000}),
            ],
            session("s", 4),
            [
                "user ann: cpu: used 7 + requested 4 > limit 10 (over by 1)",
                "project p: cpu: used 8 + requested 4 > limit 10 (over by 2)",
                "group g: cpu: used 9 + requested 4 > limit 10 (over by 3)",
            ], id="F12",
        ),
        pytest.param([limits(name="bob", **CPU10, used={"cpu": 9000})], session("s", 4), [], id="other user"),
        pytest.param(
            [limits(limits={"cuda.device": 0})], session("s", slots={"cuda.device": 1}),
            ["user ann: cuda.device: used 0 + requested 1 > limit 0 (over by 1)"
             "; it never starts under this limit"], id="0 allows none",
        ),
        pytest.param(
            [limits(limits={"cuda.device": 1}, used={"cuda.shares": 700})],
            session("s", slots={"cuda.shares": 400}),
            ["user ann: cuda.shares: used 0.7 + requested 0.4 > limit 1 (over by 0.1)"],
            id="devices and shares",
        ),
        pytest.param([hours(100, 76)], session("s", node_seconds=24 * 3600), [], id="job that fits"),
        pytest.param(
            [hours(100, 76.01), hours(100, 99, "project", "p"), hours(0.5, 0, "group", "g")],
            session("s", node_seconds=24 * 3600),
            [
                f"user ann: node-hours: used and reserved 76.01 + at most 24 > limit 100 a month {RESETS}",
                f"project p: node-hours: used and reserved 99 + at most 24 > limit 100 a month {RESETS}",
                "group g: node-hours: used and reserved 0 + at most 24 > limit 0.5 a month"
                "; it never starts under this limit",
            ], id="node-hours of a job",
        ),
        pytest.param([hours(0, 0)], session("s", node_seconds=1), [
            "user ann: node-hours: used and reserved 0 + at most 0 > limit 0 a month"
            "; it never starts under this limit"
        ], id="0 node-hours"),
        pytest.param([hours(0, 9)], session("s"), [], id="node-hours do not concern others than jobs"),
        pytest.param(
            [replace(hours(1, 1), sessions=1, running=1, limits={"cpu": 10_000}, used={"cpu": 9000})],
            session("s", 2, node_seconds=3600),
            [
                "user ann: 1 concurrent sessions of 1",
                "user ann: cpu: used 9 + requested 2 > limit 10 (over by 1)",
                f"user ann: node-hours: used and reserved 1 + at most 1 > limit 1 a month {RESETS}",
            ], id="all limits of a quota",
        ),
        pytest.param(
            [], session("s", starts_at=NOW + 1), ["its start time is in the future"], id="F17 before"
        ),
        pytest.param([], session("s", starts_at=NOW), [], id="F17 now"),
        pytest.param([], session("s", starts_at=NOW - 1), [], id="F17 after"),
        pytest.param([], session("s", dependencies="met"), [], id="F13"),
        pytest.param(
            [],
            session("s", dependencies="unmet", waits_on=(SessionId("prepare"),)),
            ["waits for prepare"],
            id="F14",
        ),
    ],
)  # fmt: skip
def test_start_conditions(quotas: list[Quota], item: Pending, messages: list[str]) -> None:
    mine = replace(item, user="ann", project="p")
    result = make_plan([node("a", cpu=64, gpus=2)], [mine], quotas=tuple(quotas))
    assert [unmet_message(unmet) for held in result.holds for unmet in held.unmet] == messages
    assert bool(result.places) == (not messages)


def test_mutually_exclusive_device_families() -> None:
    slots = {"cuda.device": 1, "mig.device": 1}
    result = make_plan(
        [node("a", gpus=2)], [session("s", slots=slots)], exclusive=(frozenset({"cuda", "mig"}),)
    )
    assert [unmet_message(u) for u in hold(result, "s").unmet] == [
        "requests cuda, mig, but a session may request only one of them"
    ]


def victim(name: str, cpu: int, priority: int = 1, started: int = 0, **fields: Any) -> Running:
    allocations = (Allocation("cpu", DeviceId(""), cpu * 1000),)
    fields = {"preemptible": True} | fields
    return Running(
        SessionId(name),
        KernelId(f"k-{name}"),
        allocations,
        started_at=started,
        priority=priority,
        **fields,
    )


def full(*running: Running) -> AgentState:
    return node("a", cpu=8, free_cpu=0, running=running)


@pytest.mark.parametrize(
    ("running", "item", "expected"),
    [
        pytest.param(
            [victim("v20", 2, started=20), victim("v24", 2, started=24)],
            session("s", 2),
            ["v20"],
            id="G1",
        ),
        pytest.param(
            [victim("p3", 2, 3, started=20), victim("p1", 2, 1, started=24)],
            session("s", 2),
            ["p1"],
            id="G3",
        ),
        pytest.param([victim("v", 2, 5)], session("s", 2), [], id="G4"),
        pytest.param([victim("v", 2), victim("w", 2)], session("s", 4), ["v", "w"], id="G6"),
        pytest.param(
            [victim("v", 2, preemptible=False)], session("s", 2), [], id="not preemptible"
        ),
        pytest.param([victim("v", 2, started=NOW)], session("s", 2), [], id="started just now"),
        pytest.param(
            [victim("v", 2)], session("s", 4), [], id="not enough: no session is preempted"
        ),
        pytest.param(
            [victim("small", 1, 1), victim("large", 4, 2)],
            session("s", 4),
            ["large"],
            id="no unnecessary victim",
        ),
        pytest.param(
            [victim("v", 2), victim("w", 2, terminating=True)],
            session("s", 2),
            [],
            id="one is already terminating",
        ),
        pytest.param([victim("v", 8)], cluster("s", 2, 2, mode="single-node"), ["v"], id="G8"),
    ],
)
def test_preemption(running: list[Running], item: Pending, expected: list[str]) -> None:
    rules = Preemption("end", 7, "oldest", min_runtime=10)
    result = make_plan([full(*running)], [replace(item, priority=5)], preemption=rules)
    assert [found.session_id for found in result.victims] == expected
    assert {(found.for_session, found.how, found.grace) for found in result.victims} <= {
        ("s", "end", 7)
    }
    assert not result.places

    if expected:
        (reservation,) = result.reservations
        assert (reservation.session_id, reservation.starts_at, reservation.basis) == (
            "s",
            NOW + 7,
            "preemption",
        )


def test_a_system_session_preempts_nothing() -> None:
    agents = [node("a", cpu=1, free_cpu=0, running=(victim("v", 1),))]
    for kind, stopped in (("interactive", ["v"]), ("system", [])):
        item = session("s", priority=90, session_type=kind)
        result = make_plan(agents, [item], preemption=Preemption())
        assert [victim.session_id for victim in result.victims] == stopped


def test_capacity_of_victims_is_reserved_for_the_preempting_session() -> None:
    running = victim("v", 2, terminating=True, ends_at=NOW + 5)
    agent = node("a", cpu=8, free_cpu=1, running=(running,))
    pending = [session("s", 3, priority=50), session("thief", 1, priority=1)]
    result = make_plan([agent], pending, preemption=Preemption())
    assert (result.places, result.victims) == ((), ())
    assert hold(result, "thief").reason is Reason.RESERVED
    assert hold(result, "thief").blocked_by == "s"


def test_nothing_is_preempted_without_the_option() -> None:
    assert make_plan([full(victim("v", 8))], [session("s", 2, priority=100)]).victims == ()


def broken(how: str) -> Any:
    def selector(candidates: Sequence[Any], item: Pending) -> Any:
        if how == "raises":
            raise ValueError("no idea")
        while how == "loops":
            pass
        return {"none": None, "nonsense": 17, "good": candidates[-1].agent.agent_id}[how]

    return selector


@pytest.mark.parametrize(
    ("how", "messages"),
    [
        ("raises", "mine raised ValueError: no idea"),
        ("loops", "mine executed more than 200000 lines without a choice"),
        ("none", "mine chose none of 2 agents"),
        ("nonsense", "mine chose 17, which is not one of 2 candidates"),
        ("missing", "there is no agent selector 'mine' (entry point moorage.agent_selectors)"),
    ],
)
def test_failing_custom_selector_refuses_the_session(how: str, messages: str) -> None:
    selectors = {} if how == "missing" else {"mine": broken(how)}
    result = make_plan(
        [node("a"), node("b")], [session("s")], agent_selection="custom:mine", selectors=selectors
    )
    held = hold(result, "s")
    assert (held.reason, held.capacity) == (Reason.SELECTOR_FAILED, False)
    assert [(refusal.kind, refusal.slot) for refusal in held.refusals] == [
        (RefusalKind.SELECTOR, messages)
    ]


def test_custom_selector_chooses_the_agent() -> None:
    pending = [session("s"), cluster("c", 1, 1, mode="multi-node", created=1)]
    result = make_plan(
        [node("a"), node("b")],
        pending,
        agent_selection="custom:mine",
        selectors={"mine": broken("good")},
    )
    assert placements(result)["s"] == ["b"]
    assert sorted(placements(result)["c"]) == ["a", "b"]
