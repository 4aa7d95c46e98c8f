"""Traces built from a recording, and their simulation: small recordings worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.views.decisions import RunView, TakeView
from moorage.manager.decision_log import RecordedPass
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy, Snapshot
from moorage.manager.scheduling.core.model import KernelRequest, Quota
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.core.results import Victim
from moorage.simulator.scheduler import (
    POLICIES,
    Fleet,
    SimulationResult,
    simulate,
    summarize,
    what_if,
)
from moorage.simulator.scheduler.jobs import SECOND, TraceJob
from moorage.simulator.scheduler.recording import build_trace
from moorage.simulator.scheduler.simulation import observe
from moorage.simulator.scheduler.trace import Arrival, Trace, trace_of_jobs, without_load

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def agent(number: int = 0, gpus: int = 2, free: int | None = None, **fields: object) -> AgentState:
    free = gpus if free is None else free
    devices = tuple(
        DeviceState(DeviceId(f"g{n}"), "cuda.device", 1000 * (n < free)) for n in range(gpus)
    )
    supported = frozenset({"process"}), frozenset({"custom"})
    return AgentState(
        AgentId(f"a{number}"), *supported, {"cpu": 9000}, {"cpu": 9000}, devices, **fields
    )  # type: ignore[arg-type]


def item(
    name: str, at_s: float, gpus: int, limit_s: int | None = None, **fields: object
) -> Pending:
    options = {"time_limit": None if limit_s is None else limit_s * SECOND} | fields
    at = round(at_s * SECOND)
    ids = SessionId(name), KernelId(f"k-{name}")
    return Pending(
        *ids, 1, 10, at, 0, "process", "custom", {"cuda.device": gpus}, waiting_since=at, **options
    )  # type: ignore[arg-type]


def decision(
    at_s: float, *pending: Pending, agents: tuple[AgentState, ...] | None = None, **fields: object
) -> RecordedPass:
    snapshot = Snapshot(
        "g", (agent(),) if agents is None else agents, pending, fields.pop("quotas", ())
    )  # type: ignore[arg-type]
    policy: Policy = fields.pop("policy", Policy())  # type: ignore[assignment]
    return RecordedPass(
        round(at_s * SECOND),
        5,
        snapshot=snapshot,
        policy=policy,
        places=(),
        placed=0,
        held={},
        victims=(),
        idle_passes=0,
    )


def run(
    name: str, taken_s: float, released_s: float | None, gpus: int = 1, **fields: object
) -> RunView:
    takes = [TakeView(slot="cuda.device", device_id=f"g{n}", amount=1000) for n in range(gpus)]
    row: dict[str, object] = {
        "kernel_id": f"k-{name}", "session_id": name, "name": name, "agent_id": "a0", "user": "ann",
        "project": "p", "priority": 10, "endpoint_id": None, "takes": takes,
        "taken_at": EPOCH + timedelta(seconds=taken_s),
        "released_at": None if released_s is None else EPOCH + timedelta(seconds=released_s),
    }  # fmt: skip
    return RunView.model_validate(row | fields)


def starts(result: SimulationResult) -> dict[str, float | None]:
    """Start times by session, in seconds."""
    return {o.session: None if o.started is None else o.started / SECOND for o in result.outcomes}


# One agent with two GPUs. a has one of them until 100, so b, which needs both, waits until then.
FOUR = (item("a", 0, 1, 100), item("b", 1, 2, 50), item("c", 2, 1, 40), item("d", 3, 1, 200))
OBSERVED = (run("a", 0, 100), run("b", 100, 150, 2), run("c", 150, 190), run("d", 150, 350))


def recorded_four() -> Trace:
    trace = build_trace([decision(n, *FOUR[: n + 1]) for n in range(4)], OBSERVED, 400 * SECOND)
    assert trace is not None
    return trace


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", {"a": 0, "b": 100, "c": 150, "d": 150}),
        ("backfill", {"a": 0, "b": 100, "c": 2, "d": 150}),
        ("greedy", {"a": 0, "b": 242, "c": 2, "d": 42}),
    ],
)
def test_recorded_work_under_another_policy(policy: str, expected: dict[str, int]) -> None:
    assert starts(simulate(recorded_four(), POLICIES[policy])) == expected


def test_observed_result_equals_the_simulation_of_the_recorded_policy() -> None:
    trace = recorded_four()
    observed = observe(trace)
    assert starts(observed) == {"a": 0, "b": 100, "c": 150, "d": 150}
    assert trace.end == 350 * SECOND, "everything had ended"
    assert observed == replace(simulate(trace, POLICIES["strict"]), passes=0)
    statistics = summarize(observed)
    assert statistics.utilization == pytest.approx((100 + 2 * 50 + 40 + 200) / (2 * 350))
    assert statistics.mean_wait == pytest.approx((0 + 99 + 148 + 147) / 4)
    assert (trace.slot, trace.cancelled) == ("cuda.shares", 0)
    assert (trace.unknown_run_times, trace.unrecorded_starts) == (0, 0)


def test_earlier_kernels_are_fixed_and_unfinished_sessions_run_until_the_end() -> None:
    passes = [decision(10, item("a", 9, 1, 5), item("b", 10, 1)), decision(30, item("c", 30, 2))]
    runs = [run("old", 1, 20), run("a", 20, 25), run("b", 25, None), run("gone", 1, 5)]
    trace = build_trace(passes, runs, 60 * SECOND)
    assert trace is not None
    assert (len(trace.fixed), trace.unknown_run_times) == (1, 2)

    # One GPU is in use until 20. a gets the other one, then b, which keeps it; c never gets both.
    assert starts(simulate(trace)) == {"a": 10, "b": 15, "c": None}
    statistics = summarize(simulate(trace))
    assert (statistics.unstarted, statistics.max_wait) == (1, 30), "until the end of the recording"
    assert statistics.mean_wait == pytest.approx((1 + 5 + 30) / 3)
    assert trace.end == 60 * SECOND


def test_cancelled_sessions_are_counted_and_not_simulated() -> None:
    trace = build_trace(
        [decision(0, item("a", 0, 3)), decision(5, item("b", 5, 1))], [run("b", 5, 9)], SECOND
    )
    assert trace is not None
    assert (trace.cancelled, [a.item.session_id for a in trace.arrivals]) == (1, ["b"])


def test_arrival_times() -> None:
    waits_for = replace(item("a", 1, 1), dependencies="unmet", waits_on=(SessionId("x"),))
    paused = item("b", 2, 1)  # first seen late: it was not eligible before
    passes = [decision(0, item("c", -50, 1)), decision(2, waits_for), decision(4, item("a", 1, 1))]
    passes.append(decision(20, paused, item("d", 19, 1)))
    names = ("a", "b", "c", "d")
    trace = build_trace(passes, [run(name, 30, 40) for name in names], 50 * SECOND)
    assert trace is not None
    assert {a.item.session_id: a.at // SECOND for a in trace.arrivals} == {
        "a": 4, "b": 20, "c": -50, "d": 19,
    }  # fmt: skip


def test_each_attempt_of_a_session_is_an_arrival() -> None:
    again = replace(item("a", 5, 1), kernel_id=KernelId("k-a2"), revision=4)
    runs = [run("a", 0, 4), run("a", 6, 8, kernel_id="k-a2")]
    trace = build_trace([decision(0, item("a", 0, 1)), decision(5, again)], runs, 9 * SECOND)
    assert trace is not None
    assert starts(simulate(trace)) == {"a": 0, "a/2": 5}


def test_kernel_of_an_unrecorded_pass_is_fixed() -> None:
    trace = build_trace([decision(0, item("a", 0, 1)), decision(9, item("b", 9, 2))], [
        run("a", 0, 3), run("odd", 5, 20), run("b", 20, 22, 2)], 30 * SECOND)  # fmt: skip
    assert trace is not None
    assert trace.unrecorded_starts == 1
    assert starts(simulate(trace)) == {"a": 0, "b": 20}


def test_agents_that_drain_join_and_leave() -> None:
    """a0 drains at 10; a1 joins at 20 and has left at 40."""
    waiting = [item(f"s{n}", at, 2) for n, at in enumerate((0, 11, 35, 41))]
    passes = [
        decision(0, waiting[0]),
        decision(11, waiting[1], agents=(agent(draining=True),)),
        decision(20, waiting[1], agents=(agent(draining=True), agent(1))),
        decision(35, waiting[2], agents=(agent(draining=True), agent(1, free=0))),
        decision(41, waiting[3], agents=(agent(draining=True),)),
    ]
    runs = [run(f"s{n}", 50, 52, 2) for n in range(4)]
    trace = build_trace(passes, runs, 60 * SECOND)
    assert trace is not None
    assert [(at // SECOND, a.agent_id) for at, a in trace.agents] == [
        (0, "a0"), (11, "a0"), (20, "a1"), (41, "a1"),
    ]  # fmt: skip
    assert starts(simulate(trace)) == {"s0": 0, "s1": 20, "s2": 35, "s3": None}
    assert simulate(trace).capacity == round(1000 * (2 * 52 + 2 * 21) / 52)


def test_recorded_policy_changes_at_the_recorded_time() -> None:
    passes = [
        decision(n, *FOUR[: n + 1], policy=POLICIES["greedy" if n < 2 else "strict"])
        for n in range(4)
    ]
    trace = build_trace(passes, OBSERVED, 400 * SECOND)
    assert trace is not None
    assert trace.latest_policy == POLICIES["strict"]
    assert starts(simulate(trace)) == {"a": 0, "b": 100, "c": 150, "d": 150}


def test_quotas_count_simulated_use() -> None:
    first, second, other = (
        item(name, at, 1, user=user, project=project)
        for name, at, user, project in (
            ("a", 0, "ann", "p"),
            ("b", 5, "ann", "p"),
            ("c", 6, "bob", "q"),
        )
    )
    runs = [run("a", 0, 10), run("b", 10, 20), run("c", 30, 31)]

    def starts_with(quota: Quota) -> dict[str, float | None]:
        passes = [
            decision(at, *some, quotas=(quota,))
            for at, some in ((0, [first]), (6, [second, other]))
        ]
        trace = build_trace(passes, runs, 40 * SECOND)
        assert trace is not None
        return starts(simulate(trace))

    # The recorded usage (77) is ignored.
    one = Quota(
        "user", "ann", limits={"cuda.device": 1}, used={"cuda.device": 77}, sessions=None, running=3
    )
    assert starts_with(one) == {"a": 0, "b": 10, "c": 6}
    assert starts_with(replace(one, scope="project", name="p")) == {"a": 0, "b": 10, "c": 6}
    assert starts_with(replace(one, scope="project", name="q")) == {"a": 0, "b": 5, "c": 10}, (
        "no GPU is free before"
    )
    assert starts_with(replace(one, scope="group", name="g", limits={}, sessions=1)) == {
        "a": 0,
        "b": 10,
        "c": 20,
    }
    assert starts_with(replace(one, limits={}, sessions=2)) == {"a": 0, "b": 5, "c": 10}


def test_use_by_other_groups_counts_as_recorded() -> None:
    """Another group holds two of the quota's three GPUs until 20."""
    first = item("a", 0, 1, user="ann")
    second = item("b", 1, 1, user="ann")
    quota = Quota(
        "user",
        "ann",
        limits={"cuda.device": 3},
        used={"cuda.device": 2},
        sessions=None,
        running=1,
        used_elsewhere={"cuda.device": 2},
        running_elsewhere=1,
    )
    passes = [
        decision(0, first, quotas=(quota,)),
        decision(1, second, quotas=(quota,)),
        decision(20, second, quotas=(replace(quota, used_elsewhere={}, running_elsewhere=0),)),
    ]
    trace = build_trace(passes, [run("a", 0, 30), run("b", 20, 40)], 50 * SECOND)
    assert trace is not None
    assert starts(simulate(trace)) == {"a": 0, "b": 20}
    sessions = replace(quota, limits={}, sessions=2)
    passes = [replace(p, snapshot=replace(p.snapshot, quotas=(sessions,))) for p in passes[:2]]
    trace = build_trace(passes, [run("a", 0, 30), run("b", 30, 40)], 50 * SECOND)
    assert trace is not None
    assert starts(simulate(trace)) == {"a": 0, "b": 30}


# low runs from 0 and needs 40 s. high arrives at 10, preempts it, and starts when the grace has
# ended, at 15. When high has ended at 25, low runs again from the beginning until 65.
PREEMPTS = Policy(preemption=Preemption(grace=5 * SECOND))


def preempted_work(how: Literal["requeue", "end"] = "requeue") -> list[RecordedPass]:
    policy = Policy(preemption=Preemption(how, 5 * SECOND))
    victim = Victim(SessionId("low"), SessionId("high"), how, 5 * SECOND)
    high = replace(item("high", 10, 2), priority=50)
    again = replace(item("low", 10, 2), kernel_id=KernelId("k-low2"), revision=4)
    passes = [decision(0, item("low", 0, 2), policy=policy), decision(10, high, policy=policy)]
    passes[1] = replace(passes[1], victims=(victim,))
    return [*passes, decision(11, high, again, policy=policy)] if how == "requeue" else passes


def test_preempted_session_is_one_arrival_with_the_run_time_of_its_last_attempt() -> None:
    runs = [run("low", 0, 15, 2), run("high", 15, 25, 2), run("low", 25, 65, 2, kernel_id="k-low2")]
    trace = build_trace(preempted_work(), runs, 100 * SECOND)
    assert trace is not None
    assert [(a.item.session_id, (a.runs or 0) // SECOND) for a in trace.arrivals] == [
        ("low", 40),
        ("high", 10),
    ]
    simulated = simulate(trace)
    observed = observe(trace)
    assert starts(simulated) == starts(observed) == {"low": 0, "high": 15}
    assert simulated.usage == (
        (0, 2000),
        (15 * SECOND, 2000),
        (25 * SECOND, 2000),
        (65 * SECOND, 0),
    )
    assert observed.usage == simulated.usage
    assert [outcome.preemptions for outcome in simulated.outcomes] == [1, 0]
    assert summarize(observed).preemptions == summarize(simulated).preemptions == 1
    without = simulate(trace, Policy())
    assert starts(without) == {"low": 0, "high": 40}, "it runs for its 40 s"
    assert summarize(without).preemptions == 0


def test_session_that_was_ended_by_preemption_has_an_unknown_run_time() -> None:
    runs = [run("low", 0, 15, 2), run("high", 15, 25, 2)]
    trace = build_trace(preempted_work("end"), runs, 100 * SECOND)
    assert trace is not None
    assert trace.unknown_run_times == 1
    assert starts(simulate(trace)) == {"low": 0, "high": 15}
    assert starts(simulate(trace, Policy())) == {"low": 0, "high": None}


@pytest.mark.parametrize(("preemptible", "expected"), [(True, 15), (False, 40)])
def test_kernel_from_before_the_recording_may_be_preempted(
    preemptible: bool, expected: int
) -> None:
    high = replace(item("high", 10, 2), priority=50)
    runs = [run("old", 0, 40, 2, preemptible=preemptible), run("high", 40, 50, 2)]
    trace = build_trace([decision(10, high)], runs, 200 * SECOND)
    assert trace is not None
    result = simulate(trace, PREEMPTS)
    assert starts(result) == {"high": expected}

    # requeued, it runs once more, beyond the recording
    ends = (25, 2000) if preemptible else (50, 0)
    assert result.usage[-1] == (ends[0] * SECOND, ends[1])


def test_recorded_preemption_of_an_earlier_kernel() -> None:
    """The job ran from -5. If it is preempted at 10, it runs again at 25 for 40 s; otherwise it
    ends at 35."""
    passes = preempted_work()[1:]
    runs = [
        run("low", -5, 15, 2),
        run("high", 15, 25, 2),
        run("low", 25, 65, 2, kernel_id="k-low2"),
    ]
    trace = build_trace(passes, runs, 100 * SECOND)
    assert trace is not None
    assert starts(simulate(trace)) == {"high": 15}
    assert simulate(trace).usage == observe(trace).usage
    assert starts(simulate(trace, Policy())) == {"high": 35}


def test_what_if_there_were_more_agents_or_devices() -> None:
    trace = recorded_four()
    model = what_if.model_agent(trace, None)
    assert model == what_if.model_agent(trace, "a0")
    with pytest.raises(InvalidInput, match="'a9' is not a recorded agent"):
        what_if.model_agent(trace, "a9")

    strict = POLICIES["strict"]
    assert starts(simulate(what_if.with_agents(trace, model, 1), strict)) == {
        "a": 0,
        "b": 1,
        "c": 2,
        "d": 42,
    }
    one = what_if.with_devices(trace, model, 1)
    assert starts(simulate(one, strict)) == {"a": 0, "b": 1, "c": 51, "d": 51}
    three = what_if.with_devices(trace, model, 3)
    assert simulate(three, strict).capacity == 5000
    assert starts(simulate(three, strict)) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_what_if_there_were_other_quotas() -> None:
    trace = recorded_four()
    one_session = what_if.QuotaChange("group", "g", sessions=1, changes_sessions=True)
    limited = what_if.with_quotas(trace, [one_session])
    assert starts(simulate(limited, POLICIES["strict"])) == {"a": 0, "b": 100, "c": 150, "d": 190}
    no_gpu = what_if.QuotaChange("group", "g", {"cuda.device": 0})
    assert set(starts(simulate(what_if.with_quotas(limited, [no_gpu]))).values()) == {None}
    removed = what_if.QuotaChange("group", "g", {"cuda.device": None}, None, changes_sessions=True)
    free = what_if.with_quotas(what_if.with_quotas(limited, [no_gpu]), [removed])
    assert starts(simulate(free)) == starts(simulate(trace))


def test_no_decisions_give_no_trace() -> None:
    assert build_trace([], [], SECOND) is None


@examples(40)
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
def test_recorded_jobs_are_simulated_like_synthetic_jobs(
    rows: list[tuple[int, int, int, bool, str, int]], name: str
) -> None:
    """Jobs and agents, both as the scheduler saw them."""
    jobs = [
        TraceJob(
            f"j{n:02}",
            at * SECOND,
            gpus=gpus,
            runs=run * SECOND,
            user=user,
            limit=run * SECOND if known else None,
            priority=priority,
        )
        for n, (at, gpus, run, known, user, priority) in enumerate(sorted(rows))
    ]
    fleet = Fleet(2, 2)
    arrivals = []
    for job in jobs:
        fields = {"user": job.user, "time_limit": job.limit, "mode": "multi-node"}
        full, rest = divmod(job.gpus, fleet.gpus)
        sizes = [fleet.gpus] * full + [rest] * (rest > 0)
        kernels = [
            KernelRequest(KernelId(f"{job.name}-{n}"), {"cuda.device": size})
            for n, size in enumerate(sizes)
        ]
        arrivals.append(
            Arrival(
                Pending(
                    SessionId(job.name), kernels[0].kernel_id, 1, job.priority, job.at, 0, "process",
                    "custom", kernels[0].slots, sub_kernels=tuple(kernels[1:]), **fields,  # type: ignore[arg-type]
                ),
                job.at, job.runs, None,
            )
        )  # fmt: skip

    end = 10_000 * SECOND
    agents = tuple((0, without_load(agent(number))) for number in range(2))
    recording = Trace(
        "g", 0, end=end, arrivals=tuple(arrivals), agents=agents, policies=((0, POLICIES[name]),)
    )
    from_recording = simulate(recording)
    synthetic = simulate(trace_of_jobs(jobs, fleet), POLICIES[name])
    assert starts(from_recording) == starts(synthetic)
    assert from_recording.usage == synthetic.usage
