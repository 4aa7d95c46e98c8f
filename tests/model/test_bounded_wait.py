"""The bound of ``docs/scheduling.md`` ("Bounded wait"), under every strategy and option, in virtual
time."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle
from typing import Any, Literal

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.examples import examples
from waiting_worlds import (
    FAR,
    FINE,
    LONGEST,
    Limits,
    Machine,
    Work,
    World,
    arrivals,
    busy_fleets,
    large_work,
    longest_wait,
    machines,
    overdue,
    service,
    short_work,
)

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.scheduling import Policy
from moorage.simulator.scheduler import POLICIES, Fleet, simulate
from moorage.simulator.scheduler.jobs import HOUR, SECOND, TraceJob
from moorage.simulator.scheduler.trace import trace_of_jobs

WORLDS = examples(120)
NAME = SessionId("waits")
PATIENCE = 10  # of the longest run: with only a bound on bypasses, it may never be overtaken
CROWD = 12  # the number of pending sessions above which no more arrive


@st.composite
def bounded_policies(draw: st.DrawFn, scale: int = 1) -> Policy:
    bypasses, age = draw(
        st.sampled_from([(None, 6), (None, 0), (3, None), (0, None), (4, 6), (None, 3)])
    )
    return Policy(
        hol=draw(st.sampled_from(["skip", "backfill", "backfill", "strict"])),
        num_retries_to_skip=draw(st.integers(0, 2)),
        agent_selection=draw(st.sampled_from(["concentrated", "dispersed", "round-robin"])),
        strategy=draw(st.sampled_from(["fifo", "lifo", "drf"])),
        max_bypasses=bypasses,
        max_skip_age=None if age is None else age * scale,
    )


def start_within_bound(world: World, stream: list[list[Work]]) -> str:
    """Play the world until the session ``NAME`` has started, and check its start against the bound
    that was computed in the tick in which it became overdue."""
    latest: int | None = None
    gpus = sum(machine.gpus for machine in world.machines)
    for later in cycle(stream):
        became_overdue = latest is None and NAME in world.pending
        world.tick(later if len(world.pending) < max(CROWD, gpus) else [])
        if NAME not in world.pending:
            return "started overdue" if latest is not None else "started earlier"

        if became_overdue and overdue(world, NAME):
            latest = longest_wait(world, NAME)
            if latest is None:
                return "nobody can help it"

        assert latest is None or world.now < latest, f"it waits longer than until {latest}"
        if latest is None and world.now > PATIENCE * world.longest:
            return "never overdue"

    raise AssertionError("the stream has ended")


@WORLDS
@given(
    st.data(),
    bounded_policies(),
    st.booleans(),
    st.sampled_from(["known", "unknown", "unknown", "mixed"]),
)
def test_overdue_session_starts_within_the_bound(
    data: st.DataObject, policy: Policy, far: bool, limits: Limits
) -> None:
    """This holds whatever arrives, no matter which end times are known, and even behind queue heads
    that cannot be placed."""
    fleet = data.draw(st.lists(machines(limits, far), min_size=1, max_size=3))
    world = World(fleet, policy)
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]))):
        world.submit(data.draw(large_work(limits, fleet)))

    world.now += 1
    world.submit(data.draw(large_work(limits, fleet)), NAME)
    event(start_within_bound(world, data.draw(st.lists(arrivals(limits), min_size=1, max_size=4))))


@WORLDS
@given(
    st.data(),
    bounded_policies(FINE),
    st.sampled_from(["known", "unknown", "unknown", "mixed"]),
    st.integers(2, 4),
)
def test_overdue_cluster_starts_within_the_bound(
    data: st.DataObject, policy: Policy, limits: Limits, kernels: int
) -> None:
    """The same on many agents, which become empty one by one while a stream of small sessions fills
    the others."""
    longest = LONGEST * FINE
    fleet = data.draw(busy_fleets(limits, longest))
    world = World(fleet, policy, longest=longest)
    small = st.lists(
        short_work(limits, longest=longest), min_size=len(fleet), max_size=2 * len(fleet)
    )
    cluster = replace(data.draw(short_work(limits, longest=longest)), gpus=2, kernels=kernels)
    cluster = replace(cluster, others=data.draw(st.sampled_from([None, None, 1])))
    for ahead in data.draw(st.sampled_from([[], [], [], [2], [3], [2, 2]])):
        world.submit(replace(cluster, kernels=ahead))

    world.now += 1
    world.submit(cluster, NAME)
    event(start_within_bound(world, [data.draw(small)]))


UNKNOWN = tuple(Work(1, runs) for runs in (LONGEST, 3))
KNOWN = tuple(Work(1, runs, LONGEST) for runs in (LONGEST, 3))
# In each tick, one more session arrives than can start, so that one is always ready to take
# capacity that becomes free.
STREAM = [[Work(1, LONGEST, None, 10, "bob"), Work(1, LONGEST, None, 10, "bob")]]
IMPORTANT = [[replace(work, priority=90) for work in STREAM[0]]]
LIMITED = [[replace(work, limit=LONGEST) for work in STREAM[0]]]
ENDLESS = [[service(), Work(1, LONGEST, LONGEST, 10, "bob")]]
SOON = (Work(1, 1), Work(1, 2))
SHORTEST = (Work(1, 1), Work(1, 3))
EARLY = (Work(1, 2, FAR), Work(1, 3, FAR))  # long before their limits, one after the other
WAITS = Work(2, 2, 2, 0)
SHORT = Work(1, 2, 2)
AGED: dict[str, Any] = {"max_bypasses": None, "max_skip_age": 6}
BYPASSED: dict[str, Any] = {"max_bypasses": 2, "max_skip_age": None}
AT_ONCE: dict[str, Any] = {"max_bypasses": 0, "max_skip_age": None}
FIRST = frozenset({AgentId("a0")})


@pytest.mark.parametrize(
    ("options", "fleet", "ahead", "work", "stream"),
    [
        pytest.param(AGED, [Machine(2, UNKNOWN)], [], WAITS, STREAM, id="no end is known"),
        pytest.param(AGED, [Machine(2, KNOWN)], [], WAITS, LIMITED, id="all ends are known"),
        pytest.param(AGED, [Machine(2, UNKNOWN)], [], WAITS, IMPORTANT, id="a stream of higher priority"),
        pytest.param(
            AGED, [Machine(2, (Work(1, FAR, FAR),) * 2), Machine(2, UNKNOWN)], [], WAITS, STREAM,
            id="the only known end is far away",
        ),
        pytest.param(
            BYPASSED, [Machine(2, (service(), service())), Machine(2, UNKNOWN)], [],
            replace(WAITS, priority=10), STREAM, id="an agent with services",
        ),
        pytest.param(
            AGED, [Machine(2, (Work(1, 999),) * 2), Machine(2, UNKNOWN)], [], WAITS, STREAM,
            id="an agent with work that stays although it has no endpoint",
        ),
        pytest.param(
            AGED, [Machine(3, (SHORT, Work(1, FAR, FAR), SHORT), unhealthy=1), Machine(2, KNOWN)], [], WAITS,
             LIMITED, id="an unhealthy device in use",
        ),
        pytest.param(
            AGED, [Machine(2, (service(), service())), Machine(2, KNOWN)], [replace(WAITS, designated=FIRST)],
            WAITS, LIMITED, id="behind a head that nobody can help",
        ),
        pytest.param(
            AGED, [Machine(2, UNKNOWN, draining=True), Machine(2, KNOWN)], [replace(WAITS, designated=FIRST)],
            WAITS, LIMITED, id="behind a head whose agent drains",
        ),
        pytest.param(
            AGED, [Machine(2, (Work(1, FAR, FAR),) * 2), Machine(2, UNKNOWN)],
            [replace(WAITS, designated=FIRST)], replace(WAITS, designated=frozenset({AgentId("a1")})), STREAM,
            id="behind a head that waits long for another agent",
        ),
        pytest.param(
            AT_ONCE, [Machine(4, KNOWN * 2)], [Work(3, 3, LONGEST)], replace(WAITS, gpus=4), ENDLESS,
            id="services that would fit beside a session ahead",
        ),
        pytest.param(
            AGED, [Machine(2, UNKNOWN), Machine(2, UNKNOWN)], [], replace(WAITS, kernels=2), STREAM,
            id="a cluster on two agents",
        ),
        pytest.param(
            AT_ONCE, [Machine(2, SOON), Machine(2, UNKNOWN), *[Machine(2, SHORTEST)] * 3], [],
            replace(WAITS, kernels=2), STREAM, id="a cluster on agents that become empty one after the other",
        ),
        pytest.param(
            {**AGED, "max_bypasses": 0},
            [Machine(2, UNKNOWN), Machine(2, (Work(1, FAR, FAR),) * 2), Machine(2, EARLY)], [], WAITS,
            LIMITED, id="a known end that comes later than what is held",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strategy", ["fifo", "lifo", "drf"])
@pytest.mark.parametrize("hol", ["skip", "backfill", "strict"])
def test_named_worlds(
    hol: Literal["skip", "backfill", "strict"],
    strategy: Literal["fifo", "lifo", "drf"],
    options: dict[str, Any],
    fleet: list[Machine],
    ahead: list[Work],
    work: Work,
    stream: list[list[Work]],
) -> None:
    """Each session would starve, or nearly so, if one of the rules were left out."""
    if hol == "strict" and options is BYPASSED:
        return  # nobody is overtaken

    world = World(fleet, Policy(hol=hol, strategy=strategy, **options))
    for one in ahead:
        world.submit(one)

    world.now += bool(ahead)
    world.submit(work, NAME)
    assert start_within_bound(world, stream) in ("started overdue", "started earlier")


SHORTEST_RUN = 500 * SECOND
LONGEST_RUN = 1500 * SECOND


def stream_of_jobs(fleet: Fleet, load: float, limited: float) -> list[TraceJob]:
    """Three hours of one-GPU jobs, of which the share ``limited`` (1 means all of them) has a time
    limit."""
    draw = random.Random(1)
    jobs = []
    mean = (SHORTEST_RUN + LONGEST_RUN) / 2 / fleet.total_gpus / load
    at = 0
    while at < 3 * HOUR:
        runs = draw.randint(SHORTEST_RUN, LONGEST_RUN)
        limit = LONGEST_RUN if draw.random() < limited else None
        jobs.append(
            TraceJob(
                f"small-{len(jobs):05}",
                at,
                gpus=1,
                runs=runs,
                user=draw.choice(["ann", "bob"]),
                limit=limit,
            )
        )
        at += round(draw.expovariate(1 / mean))

    return jobs


@pytest.mark.parametrize("policy", ["strict", "skip", "backfill", "lifo", "drf"])
@pytest.mark.parametrize("limited", [0, 0.5])
@pytest.mark.parametrize(
    ("agents", "kernels", "load"),
    [pytest.param(10, 2, 1.0, id="2 of 10"), pytest.param(20, 4, 0.9, id="4 of 20")],
)
def test_cluster_behind_hours_of_small_work(
    agents: int, kernels: int, load: float, limited: float, policy: str
) -> None:
    """At real scale, patience and runs last thousands of passes, and agents are seldom empty at the
    same time."""
    fleet = Fleet(agents, 4)
    cluster = TraceJob("cluster", 3000 * SECOND, gpus=4 * kernels, runs=600 * SECOND, user="eve")
    jobs = sorted([*stream_of_jobs(fleet, load, limited), cluster], key=lambda job: job.at)
    result = simulate(trace_of_jobs(jobs, fleet), POLICIES[policy])
    (found,) = (one for one in result.outcomes if one.session == "cluster")
    patience = POLICIES[policy].max_skip_age
    assert found.started is not None
    assert patience is not None
    assert found.started - found.arrived <= patience + LONGEST_RUN
