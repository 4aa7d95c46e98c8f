"""Scenarios of other schedulers by id: queue order (A), fair shares (B), passes (E)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from planner_builders import NOW, hold, make_plan, node, placements, session

from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import Pending, Policy
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.order import sort_pending


def tried(*retries: int) -> list[Pending]:
    return [session(f"s{n}", created=n, retries=count) for n, count in enumerate(retries)]


@pytest.mark.parametrize(
    ("pending", "options", "expected"),
    [
        pytest.param(tried(0, 0, 0), {"num_retries_to_skip": 5}, ["s0", "s1", "s2"], id="A1"),
        pytest.param(tried(5, 0, 0), {"num_retries_to_skip": 0}, ["s0", "s1", "s2"], id="A2"),
        pytest.param(tried(5, 4, 3), {"num_retries_to_skip": 5}, ["s1", "s2", "s0"], id="A3"),
        pytest.param(tried(5, 0, 0), {"num_retries_to_skip": 5}, ["s1", "s2", "s0"], id="A4"),
        pytest.param(tried(5, 5, 5), {"num_retries_to_skip": 5}, ["s0", "s1", "s2"], id="A6"),
        pytest.param(tried(0, 0, 0), {"strategy": "lifo"}, ["s2", "s1", "s0"], id="A10"),
        pytest.param([], {}, [], id="A11"),
        pytest.param(
            [session("low", priority=1), session("high", priority=10), session("mid", priority=5)],
            {},
            ["high", "mid", "low"],
            id="A12",
        ),
        pytest.param(
            [
                session("low-a", priority=1, created=1),
                session("low-b", priority=1, created=2),
                session("high-a", priority=9, created=3),
                session("high-b", priority=9, created=4),
            ],
            {"strategy": "lifo"},
            ["high-b", "high-a", "low-b", "low-a"],
            id="A13",
        ),
        pytest.param(
            [session("s", created=0, retries=9, bypassed=100), session("t", created=1)],
            {"num_retries_to_skip": 1},
            ["s", "t"],
            id="maximum bypasses: keeps its position",
        ),
        pytest.param(
            [session("s", created=0, retries=9), session("t", created=1)],
            {"num_retries_to_skip": 1, "max_skip_age": NOW},
            ["s", "t"],
            id="maximum skip age: keeps its position",
        ),
    ],
)
def test_queue_order(pending: list[Pending], options: dict[str, Any], expected: list[str]) -> None:
    policy = Policy(**({"hol": "skip"} | options))
    assert [item.session_id for item in sort_pending(pending, policy, NOW)] == expected
    result = make_plan([node("a", cpu=64)], pending, **({"hol": "skip"} | options))
    assert [place.session_id for place in result.places] == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {"num_retries_to_skip": -1}, ["num_retries_to_skip = -1", "0 or more"], id="A8"
        ),
        pytest.param({"strategy": "fair"}, ["'fair'", "fifo, lifo, drf"], id="A15"),
        pytest.param({"hol": "none"}, ["'none'", "strict, skip, backfill"], id="hol"),
        pytest.param(
            {"agent_selection": "random"},
            ["'random'", "round-robin", "custom:NAME"],
            id="selection",
        ),
        pytest.param({"agent_selection": "custom:"}, ["'custom:'"], id="custom without a name"),
        pytest.param(
            {"weights": {"ann": 0}}, ["weights['ann'] = 0", "1 or more"], id="zero weight"
        ),
        pytest.param({"max_bypasses": -1}, ["max_bypasses = -1"], id="max_bypasses"),
        pytest.param({"max_skip_age": -5}, ["max_skip_age = -5"], id="max_skip_age"),
        pytest.param({"fraction": "odd"}, ["'odd'", "even, fill"], id="fraction"),
        pytest.param({"replicas": "far"}, ["'far'", "spread, pack, none"], id="replicas"),
        pytest.param({"share_by": "team"}, ["'team'", "user, project"], id="share_by"),
    ],
)
def test_invalid_option_is_refused_with_the_allowed_values(
    options: dict[str, Any], expected: list[str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Policy(**options)
    assert all(part in str(refused.value) for part in expected)


def test_a18_session_that_never_fits_blocks_no_priority() -> None:
    for hol in ("strict", "skip", "backfill"):
        pending = [session("giant", 64, priority=20), session("small", 1, priority=10)]
        result = make_plan([node("a")], pending, hol=hol)
        assert placements(result) == {"small": ["a"]}
        assert hold(result, "giant").reason is Reason.INFEASIBLE


@pytest.mark.parametrize(
    ("used", "weights", "expected"),
    [
        pytest.param(
            {"heavy": {"cpu": 20_000}}, {}, ["light-1", "light-2", "heavy-1", "heavy-2"], id="B2"
        ),
        pytest.param(
            {}, {}, ["heavy-1", "light-1", "heavy-2", "light-2"], id="B4 equal shares alternate"
        ),
        pytest.param(
            {},
            {"heavy": 2},
            ["heavy-1", "light-1", "heavy-2", "light-2"],
            id="weight 2, alternating",
        ),
        pytest.param(
            {"heavy": {"cpu": 20_000}, "light": {"cpu": 10_000}},
            {"heavy": 4},
            ["heavy-1", "heavy-2", "light-1", "light-2"],
            id="20 of weight 4 are less than 10 of weight 1",
        ),
    ],
)
def test_drf(used: dict[str, dict[str, int]], weights: dict[str, int], expected: list[str]) -> None:
    pending = [
        session("heavy-1", 4, created=1, user="heavy"),
        session("heavy-2", 4, created=2, user="heavy"),
        session("light-1", 4, created=3, user="light"),
        session("light-2", 4, created=4, user="light"),
    ]
    result = make_plan([node("a", cpu=100)], pending, strategy="drf", usage=used, weights=weights)
    assert [place.session_id for place in result.places] == expected


def test_b3_dominant_share_is_the_largest_over_all_slots() -> None:
    usage = {"a": {"cpu": 60_000, "mem": 10_000}, "b": {"cpu": 10_000, "mem": 40_000}}
    pending = [session("of-a", created=0, user="a"), session("of-b", created=1, user="b")]
    result = make_plan([node("n", cpu=100, mem=100_000)], pending, strategy="drf", usage=usage)
    assert [place.session_id for place in result.places] == ["of-b", "of-a"]


def test_drf_counts_running_work_without_explicit_usage() -> None:
    running = Running(
        SessionId("r"), KernelId("r"), (Allocation("cpu", DeviceId(""), 3000),), user="ann"
    )
    pending = [session("of-ann", created=0, user="ann"), session("of-bob", created=1, user="bob")]
    result = make_plan([node("n", cpu=8, free_cpu=5, running=(running,))], pending, strategy="drf")
    assert [place.session_id for place in result.places] == ["of-bob", "of-ann"]


def test_e1_e2_pass_sees_its_own_places() -> None:
    result = make_plan(
        [node("a")], [session("first", 3, created=0), session("second", 3, created=1)]
    )
    assert placements(result) == {"first": ["a"]}
    assert hold(result, "second").reason is Reason.INSUFFICIENT_RESOURCES


@pytest.mark.parametrize(
    ("hol", "started", "attempted"),
    [
        pytest.param("strict", {}, False, id="E3 strict"),
        pytest.param("skip", {"small": ["a"]}, True, id="E3 skip"),
        pytest.param("backfill", {"small": ["a"]}, True, id="E3 backfill"),
    ],
)
def test_e3_blocked_head_and_a_session_that_would_fit(
    hol: str, started: Mapping[str, list[str]], attempted: bool
) -> None:
    pending = [session("big", 4, priority=10), session("small", 1, priority=1)]
    result = make_plan([node("a", free_cpu=3)], pending, hol=hol)
    assert placements(result) == started
    assert [held.attempted for held in result.holds if held.session_id == "small"] == [
        attempted
    ] * (not started)


def test_e4_agent_with_a_limit_of_no_kernels_never_fits() -> None:
    result = make_plan([node("a", max_kernels=0)], [session("first"), session("second", created=1)])
    assert [held.reason for held in result.holds] == [Reason.INFEASIBLE] * 2


def test_e6_without_agents_all_sessions_are_held_and_none_blocks() -> None:
    result = make_plan([], [session("first"), session("second", created=1)], hol="strict")
    assert [(held.reason, held.attempted) for held in result.holds] == [
        (Reason.NO_ELIGIBLE_AGENT, True)
    ] * 2


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        pytest.param(session("head", starts_at=NOW + 1), Reason.BEGIN_TIME, id="E7"),
        pytest.param(
            session("head", dependencies="unmet", waits_on=(SessionId("d"),)),
            Reason.DEPENDENCY,
            id="E8",
        ),
        pytest.param(session("head", dependencies="failed"), Reason.DEPENDENCY_FAILED, id="F15"),
        pytest.param(session("head", not_before=NOW + 1), Reason.BACKOFF, id="backoff"),
        pytest.param(session("head", user="ann", cpu=5), Reason.QUOTA, id="quota"),
        pytest.param(session("head", session_type="interactive"), Reason.NOT_ALLOWED, id="type"),
    ],
)
def test_e7_e8_unmet_conditions_block_nobody(head: Pending, reason: Reason) -> None:
    quota = Quota("user", "ann", {"cpu": 4000})
    result = make_plan(
        [node("a", cpu=8)],
        [head, session("next", created=1, session_type="batch")],
        hol="strict",
        quotas=(quota,),
        session_types=frozenset({"batch"}),
    )
    assert placements(result) == {"next": ["a"]}
    held = hold(result, "head")
    assert (held.reason, held.capacity, held.attempted) == (reason, False, True)
    assert held.unmet


def test_e11_small_sessions_run_while_a_large_one_waits() -> None:
    result = make_plan(
        [node("a", free_cpu=2)], [session("large", 4), session("small", 1, created=1)], hol="skip"
    )
    assert placements(result) == {"small": ["a"]}
    assert hold(result, "large").reason is Reason.INSUFFICIENT_RESOURCES
    assert result.bypasses == {"large": 1}
