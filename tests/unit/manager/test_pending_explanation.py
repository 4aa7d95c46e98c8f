"""What a session is told that asks why it waits: the lines, and where an expected start comes from."""

from __future__ import annotations

from typing import Any

from planner_builders import node, session

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.views.pending import PendingExplanation
from moorage.manager.explain.pending import at_time, explain_probe, probe_placement
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy, Snapshot
from moorage.manager.scheduling.core.model import Allocation, Quota, Running

MINUTE = 60_000_000
NOW = 1_767_276_000_000_000  # 2026-01-01 14:00 UTC


def busy(name: str, *running: tuple[str, int, int | None], gpus: int = 4) -> AgentState:
    """``running``: (session, GPUs, minutes until it ends)."""
    takes, taken = [], 0
    for running_name, count, minutes in running:
        devices = tuple(
            Allocation("cuda.device", DeviceId(str(n)), 1000) for n in range(taken, taken + count)
        )
        ends = None if minutes is None else NOW + minutes * MINUTE
        takes.append(Running(SessionId(running_name), KernelId(f"k-{running_name}"), devices, ends))
        taken += count
    states = tuple(DeviceState(DeviceId(str(n)), "cuda.device", 1000 * (n >= taken)) for n in range(gpus))
    return node(name, devices=states, running=tuple(takes), cpu=64)


def asks(name: str, gpus: int, created: int = 0, minutes: int | None = None, **more: Any) -> Pending:
    time_limit = None if minutes is None else minutes * MINUTE
    return session(name, slots={"cuda.device": gpus}, created=NOW + created, time_limit=time_limit, **more)


def told(agents: list[AgentState], pending: list[Pending], name: str, **options: Any) -> PendingExplanation:
    quotas = options.pop("quotas", ())
    snapshot = Snapshot("g", tuple(agents), tuple(pending), quotas)
    probe = probe_placement(snapshot, Policy(**options), NOW, SessionId(name))
    return explain_probe(probe, {one: f"{one}!" for one in probe.mentions()}, NOW)


def unmet(view: PendingExplanation) -> dict[str, str]:
    return {one.kind: one.text for one in view.conditions if not one.met}


def test_the_head_is_told_what_the_best_agent_has_and_will_have() -> None:
    agents = [busy("gpu-01", ("a", 3, 90)), busy("gpu-03", ("train-7", 2, 20)), busy("gpu-04", ("b", 4, 60))]
    view = told(agents, [asks("it", 4)], "it")
    assert view.refusals == [
        "needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session train-7! ends at about 14:20 UTC "
        "(3 agents)"
    ]
    assert (view.position, view.waiting) == (1, 1)
    assert view.expected_start == at_time(NOW + 20 * MINUTE)
    assert view.basis.startswith("capacity is reserved for it on gpu-03")
    assert view.blockers == ["train-7!"]
    assert unmet(view) == {}


def test_where_no_end_is_known_nothing_is_made_up() -> None:
    view = told([busy("gpu-01", ("model", 2, None))], [asks("it", 4)], "it")
    assert view.expected_start is None
    assert view.basis == "unknown: 1 session without a time limit on the agents where it fits"
    assert view.refusals == [
        "needs 4 cuda.device; best agent gpu-01 has 2 free, and 1 session there without a time limit"
    ]


def test_who_is_behind_others_is_told_how_many_and_the_earliest_time() -> None:
    agents = [busy("gpu-01", ("a", 4, 30))]
    known = [asks("first", 4, 1, minutes=10), asks("second", 4, 2, minutes=10), asks("it", 4, 3)]
    view = told(agents, known, "it")
    assert (view.position, view.waiting) == (3, 3)
    assert view.expected_start == at_time(NOW + 30 * MINUTE)
    assert view.basis.startswith("at the earliest, with 2 sessions ahead of it")


def test_sessions_ahead_with_no_known_end_make_it_unknown() -> None:
    agents = [busy("gpu-01", ("a", 4, 30))]
    view = told(agents, [asks("first", 4, 1), asks("second", 4, 2), asks("it", 4, 3)], "it")
    assert view.expected_start is None
    assert view.basis.startswith("unknown: 2 sessions ahead of it without a time limit")


def test_behind_a_strict_head_room_does_not_help() -> None:
    agents = [busy("gpu-01", ("a", 3, 30))]
    view = told(agents, [asks("big", 4, 1), asks("it", 1, 2)], "it", hol="strict")
    assert view.blockers == ["big!"]
    assert view.position == 2
    assert view.basis == "unknown: there is capacity for it, and it starts after big!"
    late = told(agents, [asks("big", 4, 1), asks("it", 2, 2)], "it", hol="strict")
    # It was not tried, and is told all the same what is missing.
    assert late.refusals[0].startswith(
        "needs 2 cuda.device; best agent gpu-01 has 1 free, 4 after session a!"
    )


def test_who_would_break_a_promise_is_told_whose() -> None:
    agents = [busy("gpu-01", ("a", 3, 30))]
    view = told(agents, [asks("big", 4, 1), asks("it", 1, 2)], "it")
    assert view.blockers == ["big!"]
    assert view.expected_start is None
    assert "big!" in view.text
    # Who has ended by then is let in.
    short = told(agents, [asks("big", 4, 1), asks("it", 1, 2, minutes=10)], "it")
    assert (short.text, short.expected_start) == (
        "there is capacity on gpu-01: the next pass places it",
        at_time(NOW),
    )


def test_each_condition_is_told_met_or_not() -> None:
    quota = Quota("user", "ann", {"cuda.device": 3}, {"cuda.device": 2})
    item = asks("it", 2, user="ann", dependencies="unmet", waits_on=(SessionId("dep"),), session_type="batch")
    view = told([busy("gpu-01")], [item], "it", quotas=(quota,), session_types=frozenset({"inference"}))
    assert unmet(view) == {
        "dependencies": "waits for dep!",
        "quotas": "user ann: cuda.device: used 2 + requested 2 > limit 3 (over by 1)",
        "session type": "sessions of type batch are not allowed here: inference",
    }
    assert [one.kind for one in view.conditions if one.met] == ["time", "device families"]
    assert (view.position, view.expected_start) == (None, None)
    assert view.basis.startswith("unknown: a condition is not met")


def test_what_no_agent_could_ever_hold_is_not_promised() -> None:
    view = told([busy("gpu-01", ("a", 1, 5))], [asks("it", 9)], "it")
    assert view.refusals == ["1 agent: needs 9 cuda.device, has 4 even when empty"]
    assert view.expected_start is None
    assert view.basis.startswith("unknown: waiting does not help")
    assert (view.position, view.waiting) == (None, None)


def test_a_far_time_has_its_day() -> None:
    view = told([busy("gpu-01", ("a", 4, 3 * 24 * 60))], [asks("it", 1)], "it")
    assert view.refusals[0].endswith("4 after session a! ends at about 2026-01-04 14:00 UTC")
    assert view.expected_start == at_time(NOW + 3 * 24 * 60 * MINUTE)


def test_agents_that_are_lacking_something_are_counted_beside_the_best() -> None:
    other = node("cpu-only", cpu=64)
    view = told([busy("gpu-01", ("a", 4, 30)), other], [asks("it", 2)], "it")
    assert view.refusals == [
        "needs 2 cuda.device; best agent gpu-01 has 0 free, 4 after session a! ends at about 14:30 UTC",
        "1 agent: needs 2 cuda.device, has 0 even when empty",
    ]
    assert AgentId("gpu-01") in view.basis
