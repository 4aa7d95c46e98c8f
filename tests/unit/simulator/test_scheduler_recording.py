"""Work that really came, played again: small spans worked out by hand, and the same as made-up work gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.views.decisions import RunView, TakeView
from moorage.manager.decision_log import Decision
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy, Snapshot
from moorage.manager.scheduling.core.model import KernelRequest, Quota
from moorage.simulator.scheduler import POLICIES, Floor, Played, figures
from moorage.simulator.scheduler import play as simulate
from moorage.simulator.scheduler.recording import Arrival, Recorded, empty, gather
from moorage.simulator.scheduler.replay import as_it_was, play
from moorage.simulator.scheduler.traces import SECOND, Job

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def agent(number: int = 0, gpus: int = 2, free: int | None = None, **more: object) -> AgentState:
    left = gpus if free is None else free
    devices = tuple(DeviceState(DeviceId(f"g{n}"), "cuda.device", 1000 * (n < left)) for n in range(gpus))
    serves = frozenset({"process"}), frozenset({"custom"})
    return AgentState(AgentId(f"a{number}"), *serves, {"cpu": 9000}, {"cpu": 9000}, devices, **more)  # type: ignore[arg-type]


def item(name: str, at_s: float, gpus: int, runs_for_s: int | None = None, **more: object) -> Pending:
    given = {"time_limit": None if runs_for_s is None else runs_for_s * SECOND} | more
    at = round(at_s * SECOND)
    ids = SessionId(name), KernelId(f"k-{name}")
    return Pending(*ids, 1, 10, at, 0, "process", "custom", {"cuda.device": gpus}, waiting_since=at, **given)  # type: ignore[arg-type]


def decision(
    at_s: float, *pending: Pending, agents: tuple[AgentState, ...] | None = None, **more: object
) -> Decision:
    snapshot = Snapshot("g", (agent(),) if agents is None else agents, pending, more.pop("quotas", ()))  # type: ignore[arg-type]
    policy: Policy = more.pop("policy", Policy())  # type: ignore[assignment]
    return Decision(round(at_s * SECOND), 5, snapshot, policy, (), 0, {}, (), 0)


def ran(name: str, taken_s: float, released_s: float | None, gpus: int = 1, **more: object) -> RunView:
    takes = [TakeView(slot="cuda.device", device_id=f"g{n}", amount=1000) for n in range(gpus)]
    facts: dict[str, object] = {
        "kernel_id": f"k-{name}", "session_id": name, "name": name, "agent_id": "a0", "user": "ann",
        "project": "p", "priority": 10, "endpoint_id": None, "takes": takes,
        "taken_at": EPOCH + timedelta(seconds=taken_s),
        "released_at": None if released_s is None else EPOCH + timedelta(seconds=released_s),
    }  # fmt: skip
    return RunView.model_validate(facts | more)


def starts(played: Played) -> dict[str, float | None]:
    """In seconds."""
    return {o.job.name: None if o.started is None else o.started / SECOND for o in played.outcomes}


# One agent of two GPUs. a has one of them until 100, so b, which needs both, waits until then.
FOUR = (item("a", 0, 1, 100), item("b", 1, 2, 50), item("c", 2, 1, 40), item("d", 3, 1, 200))
OBSERVED = (ran("a", 0, 100), ran("b", 100, 150, 2), ran("c", 150, 190), ran("d", 150, 350))


def four() -> Recorded:
    found = gather([decision(n, *FOUR[: n + 1]) for n in range(4)], OBSERVED, 400 * SECOND)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", {"a": 0, "b": 100, "c": 150, "d": 150}),
        ("backfill", {"a": 0, "b": 100, "c": 2, "d": 150}),
        ("greedy", {"a": 0, "b": 242, "c": 2, "d": 42}),
    ],
)
def test_another_policy_gives_the_same_work_other_starts(policy: str, expected: dict[str, int]) -> None:
    assert starts(play(four(), POLICIES[policy])) == expected


def test_as_it_was_is_what_was_observed() -> None:
    recorded = four()
    observed = as_it_was(recorded)
    assert starts(observed) == {"a": 0, "b": 100, "c": 150, "d": 150}
    assert recorded.end == 350 * SECOND, "then all had ended"
    assert observed == replace(play(recorded, POLICIES["strict"]), passes=0)
    found = figures(observed, (recorded.begin, recorded.end))
    assert found.utilisation == pytest.approx((100 + 2 * 50 + 40 + 200) / (2 * 350))
    assert found.mean_wait == pytest.approx((0 + 99 + 148 + 147) / 4)
    assert (recorded.slot, recorded.cancelled, recorded.endless, recorded.unseen) == ("cuda.shares", 0, 0, 0)


def test_what_ran_before_keeps_its_room_and_what_has_not_ended_never_does() -> None:
    passes = [decision(10, item("a", 9, 1, 5), item("b", 10, 1)), decision(30, item("c", 30, 2))]
    runs = [ran("old", 1, 20), ran("a", 20, 25), ran("b", 25, None), ran("gone", 1, 5)]
    recorded = gather(passes, runs, 60 * SECOND)
    assert recorded is not None
    assert (len(recorded.fixed), recorded.endless) == (1, 2)
    # One GPU is taken until 20: a has the other, then b, which runs on; so c never has both.
    assert starts(play(recorded, None)) == {"a": 10, "b": 15, "c": None}
    found = figures(play(recorded, None), (recorded.begin, recorded.end))
    assert (found.unstarted, found.max_wait) == (1, 30), "until the end of the span"
    assert found.mean_wait == pytest.approx((1 + 5 + 30) / 3)
    assert recorded.end == 60 * SECOND


def test_what_left_without_a_place_is_counted_and_not_played() -> None:
    recorded = gather([decision(0, item("a", 0, 3)), decision(5, item("b", 5, 1))], [ran("b", 5, 9)], SECOND)
    assert recorded is not None
    assert (recorded.cancelled, [a.item.session_id for a in recorded.arrivals]) == (1, ["b"])


def test_when_a_session_came() -> None:
    waits_for = replace(item("a", 1, 1), dependencies="unmet", waits_on=(SessionId("x"),))
    paused = item("b", 2, 1)  # seen late: it was not to start before
    passes = [decision(0, item("c", -50, 1)), decision(2, waits_for), decision(4, item("a", 1, 1))]
    passes.append(decision(20, paused, item("d", 19, 1)))
    names = ("a", "b", "c", "d")
    recorded = gather(passes, [ran(name, 30, 40) for name in names], 50 * SECOND)
    assert recorded is not None
    assert {a.item.session_id: a.at // SECOND for a in recorded.arrivals} == {
        "a": 4, "b": 20, "c": -50, "d": 19,
    }  # fmt: skip


def test_each_attempt_of_a_session_is_an_arrival_of_its_own() -> None:
    again = replace(item("a", 5, 1), kernel_id=KernelId("k-a2"), revision=4)
    runs = [ran("a", 0, 4), ran("a", 6, 8, kernel_id="k-a2")]
    recorded = gather([decision(0, item("a", 0, 1)), decision(5, again)], runs, 9 * SECOND)
    assert recorded is not None
    assert starts(play(recorded, None)) == {"a": 0, "a/2": 5}


def test_who_got_a_place_unseen_runs_where_it_ran() -> None:
    recorded = gather([decision(0, item("a", 0, 1)), decision(9, item("b", 9, 2))], [
        ran("a", 0, 3), ran("odd", 5, 20), ran("b", 20, 22, 2)], 30 * SECOND)  # fmt: skip
    assert recorded is not None
    assert recorded.unseen == 1
    assert starts(play(recorded, None)) == {"a": 0, "b": 20}


def test_an_agent_that_drained_came_or_left() -> None:
    """a0 drains at 10, a1 comes at 20 and has left at 40."""
    waiting = [item(f"s{n}", at, 2) for n, at in enumerate((0, 11, 35, 41))]
    passes = [
        decision(0, waiting[0]),
        decision(11, waiting[1], agents=(agent(draining=True),)),
        decision(20, waiting[1], agents=(agent(draining=True), agent(1))),
        decision(35, waiting[2], agents=(agent(draining=True), agent(1, free=0))),
        decision(41, waiting[3], agents=(agent(draining=True),)),
    ]
    runs = [ran(f"s{n}", 50, 52, 2) for n in range(4)]
    recorded = gather(passes, runs, 60 * SECOND)
    assert recorded is not None
    assert [(at // SECOND, a.agent_id) for at, a in recorded.floor] == [
        (0, "a0"), (11, "a0"), (20, "a1"), (41, "a1"),
    ]  # fmt: skip
    assert starts(play(recorded, None)) == {"s0": 0, "s1": 20, "s2": 35, "s3": None}
    assert play(recorded, None).floor.total == round(1000 * (2 * 52 + 2 * 21) / 52)


def test_the_recorded_policy_changes_when_it_changed() -> None:
    passes = [decision(n, *FOUR[: n + 1], policy=POLICIES["greedy" if n < 2 else "strict"]) for n in range(4)]
    recorded = gather(passes, OBSERVED, 400 * SECOND)
    assert recorded is not None
    assert recorded.policy == POLICIES["strict"]
    assert starts(play(recorded, None)) == {"a": 0, "b": 100, "c": 150, "d": 150}


def test_quotas_are_counted_as_it_is_played() -> None:
    first, second, other = (
        item(name, at, 1, user=user, project=project)
        for name, at, user, project in (("a", 0, "ann", "p"), ("b", 5, "ann", "p"), ("c", 6, "bob", "q"))
    )
    runs = [ran("a", 0, 10), ran("b", 10, 20), ran("c", 30, 31)]

    def played(quota: Quota) -> dict[str, float | None]:
        passes = [decision(at, *some, quotas=(quota,)) for at, some in ((0, [first]), (6, [second, other]))]
        recorded = gather(passes, runs, 40 * SECOND)
        assert recorded is not None
        return starts(play(recorded, None))

    # What was used then (77) is not what is used now.
    one = Quota("user", "ann", {"cuda.device": 1}, {"cuda.device": 77}, None, 3)
    assert played(one) == {"a": 0, "b": 10, "c": 6}
    assert played(replace(one, scope="project", name="p")) == {"a": 0, "b": 10, "c": 6}
    assert played(replace(one, scope="project", name="q")) == {"a": 0, "b": 5, "c": 10}, "for want of room"
    assert played(replace(one, scope="group", name="g", limits={}, sessions=1)) == {"a": 0, "b": 10, "c": 20}
    assert played(replace(one, limits={}, sessions=2)) == {"a": 0, "b": 5, "c": 10}


def test_nothing_was_decided() -> None:
    assert gather([], [], SECOND) is None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30), st.integers(1, 5), st.integers(1, 20), st.booleans(),
            st.sampled_from(["ann", "bob"]), st.sampled_from([10, 10, 20]),
        ),
        min_size=1, max_size=12,
    ),
    st.sampled_from(sorted(POLICIES)),
)  # fmt: skip
def test_recorded_work_is_played_as_work_that_was_made_up(
    given_: list[tuple[int, int, int, bool, str, int]], name: str
) -> None:
    """The two worlds share only the planner."""
    jobs = [
        Job(f"j{n:02}", at * SECOND, gpus, run * SECOND, user, run * SECOND if known else None, priority)
        for n, (at, gpus, run, known, user, priority) in enumerate(sorted(given_))
    ]
    floor = Floor(2, 2)
    arrivals = []
    for job in jobs:
        asks = {"user": job.user, "time_limit": job.limit, "mode": "multi-node"}
        full, rest = divmod(job.gpus, floor.gpus)
        sizes = [floor.gpus] * full + [rest] * (rest > 0)
        kernels = [
            KernelRequest(KernelId(f"{job.name}-{n}"), {"cuda.device": size}) for n, size in enumerate(sizes)
        ]
        arrivals.append(
            Arrival(
                Pending(
                    SessionId(job.name), kernels[0].kernel_id, 1, job.priority, job.at, 0, "process",
                    "custom", kernels[0].slots, sub_kernels=tuple(kernels[1:]), **asks,  # type: ignore[arg-type]
                ),
                job.at, job.runs, None,
            )
        )  # fmt: skip
    end = 10_000 * SECOND
    states = tuple((0, empty(agent(number))) for number in range(2))
    recorded = Recorded("g", 0, end, tuple(arrivals), (), states, ((0, POLICIES[name]),), ((0, ()),), {}, 0)
    made_up = simulate(jobs, floor, POLICIES[name])
    assert starts(play(recorded, None)) == starts(made_up)
    assert [(at, used // 1000) for at, used in play(recorded, None).busy] == list(made_up.busy)
