"""The pending explanation: refusals, unmet conditions, and the basis of the expected start."""

from __future__ import annotations

from typing import Any

import pytest
from planner_builders import node, session

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.views.pending import PendingExplanation
from moorage.manager.explain.forecast import MAX_AHEAD
from moorage.manager.explain.pending import at_time, explain_probe, probe_placement
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy, Snapshot
from moorage.manager.scheduling.core.model import Allocation, KernelRequest, Quota, Running

MINUTE = 60_000_000
NOW = 1_767_276_000_000_000  # 2026-01-01 14:00 UTC


def busy(name: str, *running: tuple[str, int, int | None], gpus: int = 4) -> AgentState:
    """``running``: (session, GPUs, minutes until it ends)."""
    running_sessions = []
    used = 0
    for running_name, count, minutes in running:
        devices = tuple(
            Allocation("cuda.device", DeviceId(str(n)), 1000) for n in range(used, used + count)
        )
        ends = None if minutes is None else NOW + minutes * MINUTE
        running_sessions.append(
            Running(SessionId(running_name), KernelId(f"k-{running_name}"), devices, ends)
        )
        used += count

    states = tuple(
        DeviceState(DeviceId(str(n)), "cuda.device", 1000 * (n >= used)) for n in range(gpus)
    )
    return node(name, devices=states, running=tuple(running_sessions), cpu=64)


def pending_session(
    name: str, gpus: int, created: int = 0, minutes: int | None = None, **fields: Any
) -> Pending:
    time_limit = None if minutes is None else minutes * MINUTE
    return session(
        name, slots={"cuda.device": gpus}, created=NOW + created, time_limit=time_limit, **fields
    )


def explain(
    agents: list[AgentState], pending: list[Pending], name: str, **options: Any
) -> PendingExplanation:
    quotas = options.pop("quotas", ())
    snapshot = Snapshot("g", tuple(agents), tuple(pending), quotas)
    probe = probe_placement(snapshot, Policy(**options), NOW, SessionId(name))
    return explain_probe(probe, {one: f"{one}!" for one in probe.mentions()}, NOW)


def unmet(view: PendingExplanation) -> dict[str, str]:
    return {one.kind: one.text for one in view.conditions if not one.met}


def test_head_names_the_best_agent_and_when_capacity_returns() -> None:
    agents = [
        busy("gpu-01", ("a", 3, 90)),
        busy("gpu-03", ("train-7", 2, 20)),
        busy("gpu-04", ("b", 4, 60)),
    ]
    view = explain(agents, [pending_session("it", 4)], "it")
    assert view.refusals == [
        "needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session train-7! ends at about 14:20 UTC "
        "(3 agents)"
    ]
    assert (view.position, view.waiting) == (1, 1)
    assert view.expected_start == at_time(NOW + 20 * MINUTE)
    assert view.basis.startswith("capacity is reserved for it on gpu-03")
    assert view.blockers == ["train-7!"]
    assert unmet(view) == {}


def test_start_is_unknown_without_time_limits() -> None:
    view = explain([busy("gpu-01", ("model", 2, None))], [pending_session("it", 4)], "it")
    assert view.expected_start is None
    assert view.basis == "unknown: 1 session without a time limit on the agents where it fits"
    assert view.refusals == [
        "needs 4 cuda.device; best agent gpu-01 has 2 free, and 1 session there without a time limit"
    ]


def test_later_session_has_a_position_and_counts_those_ahead() -> None:
    agents = [busy("gpu-01", ("a", 4, 30))]
    known = [
        pending_session("first", 4, 1, minutes=10),
        pending_session("second", 4, 2, minutes=10),
        pending_session("it", 4, 3),
    ]
    view = explain(agents, known, "it")
    assert (view.position, view.waiting) == (3, 3)
    assert view.expected_start == at_time(NOW + 50 * MINUTE)
    assert view.expected_kind == "earliest"
    assert view.basis == "behind 2 sessions ahead of it, if all run until their limits"


def test_session_behind_one_that_starts_now_counts_its_limit() -> None:
    first = pending_session("first", 4, 1, minutes=10)
    view = explain([busy("gpu-01")], [first, pending_session("it", 4, 2)], "it")
    assert view.expected_start == at_time(NOW + 10 * MINUTE)
    assert view.basis.endswith("these end by 14:10 UTC at the latest: those that start now")


def test_clusters_and_devices_of_those_ahead_are_counted() -> None:
    """At minute 30, the cluster takes both agents for 10 minutes. After that, "it" fits on one of
    them."""
    agents = [busy("gpu-01", ("a", 4, 30)), busy("gpu-02", ("b", 4, 20))]
    pair = pending_session(
        "pair", 4, 1, minutes=10, mode="multi-node",
        sub_kernels=(KernelRequest(KernelId("sub"), {"cuda.device": 4}),),
    )  # fmt: skip
    view = explain(agents, [pair, pending_session("it", 4, 2, minutes=60)], "it")
    assert view.expected_start == at_time(NOW + 40 * MINUTE)


def test_thousands_of_sessions_ahead_are_not_played_for_an_answer() -> None:
    ahead = [pending_session(f"s{n}", 4, 1, minutes=10) for n in range(MAX_AHEAD + 1)]
    view = explain([busy("gpu-01", ("a", 4, 30))], [*ahead, pending_session("it", 4, 2)], "it")
    assert view.expected_start == at_time(NOW + 30 * MINUTE)
    assert view.basis.startswith(f"at the earliest, with {MAX_AHEAD + 1} sessions ahead of it")


def test_start_is_unknown_behind_sessions_without_time_limits() -> None:
    agents = [busy("gpu-01", ("a", 4, 30))]
    view = explain(
        agents,
        [
            pending_session("first", 4, 1),
            pending_session("second", 4, 2),
            pending_session("it", 4, 3),
        ],
        "it",
    )
    assert view.expected_start is None
    assert view.basis.startswith("unknown: 2 sessions ahead of it without a time limit")


def test_strict_head_blocks_a_session_that_fits() -> None:
    agents = [busy("gpu-01", ("a", 3, 30))]
    view = explain(
        agents, [pending_session("big", 4, 1), pending_session("it", 1, 2)], "it", hol="strict"
    )
    assert view.blockers == ["big!"]
    assert view.position == 2
    assert view.basis == "unknown: there is capacity for it, and it starts after big!"
    late = explain(
        agents, [pending_session("big", 4, 1), pending_session("it", 2, 2)], "it", hol="strict"
    )

    # The planner did not try the session, but the missing capacity is still reported.
    assert late.refusals[0].startswith(
        "needs 2 cuda.device; best agent gpu-01 has 1 free, 4 after session a!"
    )


def test_reservation_blocks_a_session_that_would_delay_it() -> None:
    agents = [busy("gpu-01", ("a", 3, 30))]
    view = explain(agents, [pending_session("big", 4, 1), pending_session("it", 1, 2)], "it")
    assert view.blockers == ["big!"]
    assert view.expected_start is None
    assert "big!" in view.text

    # A session that ends before the reservation starts is backfilled.
    short = explain(
        agents, [pending_session("big", 4, 1), pending_session("it", 1, 2, minutes=10)], "it"
    )
    assert (short.text, short.expected_start) == (
        "there is capacity on gpu-01: the next pass places it",
        at_time(NOW),
    )


def test_conditions_are_listed_as_met_or_unmet() -> None:
    quota = Quota("user", "ann", {"cuda.device": 3}, {"cuda.device": 2})
    item = pending_session(
        "it",
        2,
        user="ann",
        dependencies="unmet",
        waits_on=(SessionId("dep"),),
        session_type="batch",
    )
    view = explain(
        [busy("gpu-01")], [item], "it", quotas=(quota,), session_types=frozenset({"inference"})
    )
    assert unmet(view) == {
        "dependencies": "waits for dep!",
        "quotas": "user ann: cuda.device: used 2 + requested 2 > limit 3 (over by 1)",
        "session type": "sessions of type batch are not allowed here: inference",
    }
    assert [one.kind for one in view.conditions if one.met] == ["time", "device families"]
    assert (view.position, view.expected_start) == (None, None)
    assert view.basis.startswith("unknown: a condition is not met")


def test_infeasible_session_has_no_expected_start() -> None:
    view = explain([busy("gpu-01", ("a", 1, 5))], [pending_session("it", 9)], "it")
    assert view.refusals == ["1 agent: needs 9 cuda.device, has 4 even when empty"]
    assert view.expected_start is None
    assert view.basis.startswith("unknown: waiting does not help")
    assert (view.position, view.waiting) == (None, None)


def test_distant_time_includes_its_date() -> None:
    view = explain([busy("gpu-01", ("a", 4, 3 * 24 * 60))], [pending_session("it", 1)], "it")
    assert view.refusals[0].endswith("4 after session a! ends at about 2026-01-04 14:00 UTC")
    assert view.expected_start == at_time(NOW + 3 * 24 * 60 * MINUTE)


def test_infeasible_agents_are_counted_separately() -> None:
    other = node("cpu-only", cpu=64)
    view = explain([busy("gpu-01", ("a", 4, 30)), other], [pending_session("it", 2)], "it")
    assert view.refusals == [
        "needs 2 cuda.device; best agent gpu-01 has 0 free, 4 after session a! ends at about 14:30 UTC",
        "1 agent: needs 2 cuda.device, has 0 even when empty",
    ]
    assert AgentId("gpu-01") in view.basis


@pytest.mark.parametrize(
    ("running", "waits_on", "expected"),
    [
        pytest.param([("a", 2, 20), ("b", 1, 30)], ["a"], 20, id="one with a limit"),
        pytest.param([("a", 2, 20), ("b", 1, 30)], ["a", "b"], 30, id="the last of two"),
        pytest.param([("a", 2, -1)], ["a"], 0, id="past its limit"),
        pytest.param([("a", 2, None)], ["a"], None, id="no limit"),
        pytest.param([("a", 2, 20), ("b", 1, None)], ["a", "b"], None, id="one of them has none"),
        pytest.param([("a", 2, 20)], ["a", "elsewhere"], None, id="one that does not run here"),
    ],
)
def test_dependent_is_expected_when_its_dependencies_have_ended(
    running: list[tuple[str, int, int | None]], waits_on: list[str], expected: int | None
) -> None:
    item = pending_session("it", 1, dependencies="unmet", waits_on=tuple(map(SessionId, waits_on)))
    view = explain([busy("gpu-01", *running)], [item], "it")
    if expected is None:
        assert (view.expected_start, view.expected_kind) == (None, None)
        assert view.basis.startswith("unknown: a condition is not met")
    else:
        assert (view.expected_start, view.expected_kind) == (
            at_time(NOW + expected * MINUTE),
            "dependency",
        )
        assert f"at {at_time(NOW + expected * MINUTE):%H:%M} UTC at the latest" in view.basis


def test_dependent_that_a_quota_holds_back_too_has_no_expected_start() -> None:
    quota = Quota("user", "ann", {"cuda.device": 3}, {"cuda.device": 2})
    item = pending_session("it", 2, user="ann", dependencies="unmet", waits_on=(SessionId("a"),))
    view = explain([busy("gpu-01", ("a", 2, 20))], [item], "it", quotas=(quota,))
    assert view.expected_start is None


def test_answer_does_not_call_free_what_goes_to_those_ahead() -> None:
    """The agent has 4 free GPUs, which go to the session ahead in this pass."""
    view = explain(
        [busy("gpu-01")], [pending_session("first", 4, 1), pending_session("it", 4, 2)], "it"
    )
    assert view.refusals == [
        "needs 4 cuda.device; best agent gpu-01 has 0 free after those ahead of it"
    ]
    assert view.basis == "unknown: the free capacity goes to sessions ahead of it now"


def test_answer_does_not_call_free_what_is_reserved() -> None:
    agents = [busy("gpu-01", ("a", 3, 30)), busy("gpu-02", ("b", 4, None))]
    view = explain(agents, [pending_session("big", 4, 1), pending_session("it", 1, 2)], "it")
    assert view.basis == "unknown: the capacity for it is reserved, and it starts after big!"
    assert view.refusals[0].startswith(
        "needs 1 cuda.device; best agent gpu-02 has 0 free besides reserved capacity"
    )
