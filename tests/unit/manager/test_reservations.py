"""Reservations by example: their start, and sessions that may start ahead or for which waiting does
not help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from planner_builders import NOW, cluster, hold, make_plan, node, placements, session

from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Plan, Policy
from moorage.manager.scheduling.backfill.earliest_fit import LONG_RUN
from moorage.manager.scheduling.core.model import Allocation, KernelRequest, Running
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner

HOUR = 3_600_000_000
MEMORY = (Allocation("mem", DeviceId(""), 100),)
LATE: dict[str, Any] = {"max_bypasses": 1, "max_skip_age": None}


def running(name: str, cpu: int, ends: int | None, **fields: Any) -> Running:
    """``ends``: after ``NOW``."""
    taken = (Allocation("cpu", DeviceId(""), cpu * 1000),)
    return Running(
        SessionId(name), KernelId(name), taken, None if ends is None else NOW + ends, **fields
    )


def busy(name: str, ends: int | None, cpu: int = 4, **fields: Any) -> AgentState:
    return node(name, cpu, free_cpu=0, running=(running(f"on-{name}", cpu, ends, **fields),))


def shared(name: str, ends: int, **fields: Any) -> AgentState:
    """An agent whose only device is in use."""
    device = DeviceId("0")
    taken = (Allocation("cuda.device", device, 1000),)
    work = Running(SessionId(f"on-{name}"), KernelId(f"on-{name}"), taken, NOW + ends)
    return node(name, devices=(DeviceState(device, "cuda.device", 0, **fields),), running=(work,))


def reserved(result: Plan) -> dict[str, list[tuple[list[str], int | None]]]:
    """The agents of each reservation, and its start relative to ``NOW``."""
    found: dict[str, list[tuple[list[str], int | None]]] = {}
    for one in result.reservations:
        starts = None if one.starts_at is None else one.starts_at - NOW
        found.setdefault(one.session_id, []).append((list(one.agents), starts))
    return found


def incrementally(agents: Sequence[AgentState], pending: Sequence[Pending], **options: Any) -> Plan:
    """The same plan from the planner that finds agents with an index where it can."""
    planner = IncrementalPlanner("g", Policy(**options))
    planner.update_agents(agents)
    planner.update_sessions(pending)
    return planner.plan(NOW)


def late(name: str, cpu: int = 4, **fields: Any) -> Pending:
    return session(name, cpu, bypassed=1, **fields)


@pytest.mark.parametrize(
    ("agents", "item", "expected"),
    [
        pytest.param([busy("a", 9), busy("b", 5)], late("s"), [(["b"], 5)], id="at the first known end"),
        pytest.param([busy("a", None)], late("s"), [(["a"], None)], id="held without one"),
        pytest.param(
            [busy("a", None, endpoint_id=EndpointId("e")), busy("b", None)], late("s"), [(["b"], None)],
            id="not behind a service",
        ),
        pytest.param([busy("a", None, endpoint_id=EndpointId("e"))], late("s"), [], id="only services"),
        pytest.param(
            [busy("a", None, started_at=7), busy("b", None, started_at=3)], late("s"), [(["b"], None)],
            id="where the work has run longest",
        ),
        pytest.param(
            [busy("a", 5), busy("b", 9), busy("c", 7)], cluster("s", 4, 4, mode="multi-node", bypassed=1),
            [(["a", "c"], 7)], id="a cluster at the time of its last agent",
        ),
        pytest.param(
            # Both kernels fit on b first, but the large one fits nowhere else.
            [busy("a", 5, cpu=2), busy("b", 3, cpu=4)], cluster("s", 2, 4, mode="multi-node", bypassed=1),
            [(["a", "b"], 5)], id="a cluster whose small kernel must move",
        ),
        pytest.param(
            [busy("a", 3, cpu=2), busy("b", 5), busy("c", 5)],
            cluster("s", 2, 2, mode="single-node", bypassed=1),
            [(["b"], 5)], id="a cluster that stays on one agent",
        ),
        pytest.param([busy("a", 5), busy("b", 5)], late("s"), [(["a"], 5)], id="the first of equal ones"),
        pytest.param(
            [busy("a", 3), busy("b", 5)], late("s", designated=frozenset({"b"})), [(["b"], 5)],
            id="where it may run",
        ),
        pytest.param(
            [busy("a", None), busy("b", None, started_at=5)], late("s", designated=frozenset({"b"})),
            [(["b"], None)], id="held where it may run",
        ),
        pytest.param(
            [shared("a", 3, quantum=1000), shared("b", 5)], late("s", 0, slots={"cuda.shares": 500}),
            [(["b"], 5)], id="not on a device that is not split",
        ),
    ],
)  # fmt: skip
def test_reservations_of_an_overdue_session(
    agents: Sequence[AgentState], item: Pending, expected: list[tuple[list[str], int | None]]
) -> None:
    options = {"max_bypasses": 1, "max_skip_age": HOUR}
    for _ in range(2):  # then it is known what an agent's work will free, and when
        assert reserved(make_plan(agents, [item], **options)).get("s", []) == expected
    assert reserved(incrementally(agents, [item], **options)).get("s", []) == expected


def test_far_end_is_no_reason_not_to_hold_another_agent() -> None:
    agents = [busy("far", 2 * HOUR), busy("unknown", None)]
    result = make_plan(agents, [late("s")], max_bypasses=1, max_skip_age=HOUR)
    assert reserved(result) == {"s": [(["far"], 2 * HOUR), (["unknown"], None)]}


def test_one_more_agent_is_held_with_each_further_period() -> None:
    agents = [busy(name, None) for name in "abcd"]
    found = []
    for waited in (1, 2, 3, 9):
        item = session("s", 4, created=NOW - waited * 1000)
        result = reserved(make_plan(agents, [item], max_skip_age=1000))
        assert reserved(incrementally(agents, [item], max_skip_age=1000)) == result
        ((held, _),) = result["s"]
        found.append(len(held))
    assert found == [1, 2, 3, 4]


def test_not_more_agents_are_held_than_the_bound_says() -> None:
    agents = [busy(f"{n:02}", None) for n in range(20)]
    item = session("s", 4, created=NOW - 99_000)
    ((held, _),) = reserved(make_plan(agents, [item], max_skip_age=1000))["s"]
    assert len(held) == 1 + 16
    many = [late(f"s{n:02}", created=n) for n in range(10)]
    assert list(reserved(make_plan(agents, many, **LATE))) == [f"s{n:02}" for n in range(8)]


def test_agents_that_are_held_beyond_those_of_a_cluster_could_take_its_largest_kernel() -> None:
    agents = [
        busy("a", None, started_at=1),
        busy("b", None, cpu=2, started_at=2),
        busy("c", None, cpu=2, started_at=3),
        busy("d", None, started_at=4),
    ]
    item = cluster("s", 4, 2, mode="multi-node", created=NOW - 2000)
    assert reserved(make_plan(agents, [item], max_skip_age=1000)) == {
        "s": [(["a", "b", "d"], None)]
    }


def started(name: str, at: int, **fields: Any) -> AgentState:
    """Busy with work without a time limit that started ``at`` after ``NOW``."""
    return busy(name, None, started_at=NOW + at, **fields)


PAIR = cluster("s", 4, 4, mode="multi-node", bypassed=1, waiting_since=NOW - 7)


@pytest.mark.parametrize(
    ("agents", "item", "expected"),
    [
        pytest.param(
            [started("a", -5), started("b", -3), node("c", 4)], PAIR, ["c", "a"],
            id="an agent of a cluster when it has become empty",
        ),
        pytest.param(
            [started("a", -5), node("b", 4), node("c", 4)], replace(PAIR, sub_kernels=PAIR.sub_kernels * 2),
            ["b", "c", "a"], id="two of them",
        ),
        pytest.param(
            [started("a", -LONG_RUN + 5), started("b", -LONG_RUN - 2)], late("s", waiting_since=NOW - 7),
            ["b"], id="an agent whose work has run for a day since",
        ),
        pytest.param(
            [started("a", -LONG_RUN + 5), started("b", -LONG_RUN - 9)], late("s", waiting_since=NOW - 7),
            ["a"], id="but not one whose work had run for a day before",
        ),
        pytest.param(
            [started("a", -LONG_RUN + 5), started("b", -LONG_RUN - 2), node("c", 4)], PAIR, ["c", "b"],
            id="an agent of a cluster whose work has run for a day since",
        ),
    ],
)  # fmt: skip
def test_held_agents_stay_held(
    agents: Sequence[AgentState], item: Pending, expected: list[str]
) -> None:
    options: dict[str, Any] = {"max_bypasses": 1, "max_skip_age": HOUR}
    planner = IncrementalPlanner("g", Policy(**options))
    planner.update_agents(agents)
    planner.update_sessions([item])
    assert reserved(planner.plan(NOW)) == reserved(make_plan(agents, [item], **options))
    assert reserved(planner.plan(NOW)) == {"s": [(expected, None)]}


def test_kernel_of_a_cluster_leaves_its_agent_to_another_one_that_would_wait_longer() -> None:
    """cpu becomes free first on a and then on b; mem becomes free first on a and much later on
    c."""
    shared = (
        running("cpu", 4, None, started_at=5),
        replace(running("mem", 0, None), allocations=MEMORY),
    )
    agents = [
        node("a", 4, 100, free_cpu=0, free_mem=0, running=shared),
        node("b", 4, 0, free_cpu=0, running=(running("on-b", 4, None, started_at=8),)),
        node(
            "c",
            0,
            100,
            free_mem=0,
            running=(replace(shared[1], session_id=SessionId("on-c"), started_at=9),),
        ),
    ]
    main = {"cpu": 4000}
    other = KernelRequest(KernelId("k1"), {"mem": 100})
    item = session("s", 4, bypassed=1, slots=main, sub_kernels=(other,), mode="multi-node")
    assert reserved(make_plan(agents, [item], **LATE)) == {"s": [(["b", "a"], None)]}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param(HOUR // 2, [(["known"], HOUR // 2), (["unknown"], None)], id="a known end"),
        pytest.param(
            -1, [(["known"], 0), (["unknown"], None)], id="work that is past its end and goes on"
        ),
    ],
)
def test_hold_is_not_given_up_for(ends: int, expected: list[tuple[list[str], int | None]]) -> None:
    agents = [busy("known", ends), started("unknown", -HOUR)]
    assert reserved(make_plan(agents, [late("s")], max_bypasses=1, max_skip_age=HOUR)) == {
        "s": expected
    }


def test_cluster_holds_what_is_reserved_for_it_at_a_known_end() -> None:
    """At the known end, a and b can run it; a and c may be able to earlier."""
    agents = [node("a", 4), busy("b", 2 * HOUR), started("c", -5)]
    result = make_plan(agents, [PAIR, session("x", 1, created=NOW, time_limit=HOUR)], **LATE)
    assert reserved(result) == {"s": [(["a", "b"], 2 * HOUR), (["a", "c"], None)]}
    assert hold(result, "x").reason is Reason.RESERVED


def test_unhealthy_device_in_use_does_not_come_free() -> None:
    names = [DeviceId(f"{n}") for n in range(3)]
    ends = {names[1]: NOW + 50, names[2]: NOW + 5}
    devices = (
        DeviceState(names[0], "cuda.device", 1000),
        DeviceState(names[1], "cuda.device", 0),
        DeviceState(names[2], "cuda.device", 0, healthy=False),
    )
    work = tuple(
        Running(SessionId(name), KernelId(name), (Allocation("cuda.device", name, 1000),), at)
        for name, at in ends.items()
    )
    result = make_plan(
        [node("a", devices=devices, running=work)], [session("s", 0, slots={"cuda.device": 2})]
    )
    assert reserved(result) == {"s": [(["a"], 50)]}


def test_overdue_session_that_a_guard_refuses_gets_a_reservation_too() -> None:
    agents = [node("a", 8, free_cpu=4, running=(running("r", 4, 50),)), busy("b", None)]
    pending = [late("first", 8), late("second", 4, created=1)]
    result = make_plan(agents, pending, **LATE)
    assert hold(result, "second").reason is Reason.RESERVED
    assert reserved(result) == {"first": [(["a"], 50)], "second": [(["b"], None)]}


def pair(name: str, **fields: Any) -> Pending:
    return cluster(name, 4, 4, mode="multi-node", bypassed=1, **fields)


@pytest.mark.parametrize("ends", [None, 5], ids=["unknown ends", "known ends"])
@pytest.mark.parametrize(
    ("make", "each"),
    [
        pytest.param(late, 1, id="anywhere"),
        pytest.param(
            lambda name, **f: late(name, labels={"zone": "x"}, **f), 1, id="with constraints"
        ),
        pytest.param(pair, 2, id="clusters"),
    ],
)
def test_two_overdue_sessions_have_agents_of_their_own(
    make: Any, each: int, ends: int | None
) -> None:
    """If both held an agent, it would start one of them, and the other would wait in vain."""
    agents = [
        replace(started(name, n), labels={"zone": "x"})
        if ends is None
        else replace(busy(name, ends + n), labels={"zone": "x"})
        for n, name in enumerate("abcd")
    ]
    pending = [make("first"), make("second", created=1)]
    planner = IncrementalPlanner("g", Policy(**LATE))
    planner.update_agents(agents)
    planner.update_sessions(pending)
    result = reserved(make_plan(agents, pending, **LATE))
    assert reserved(planner.plan(NOW)) == result
    assert result == {
        "first": [(["a", "b"][:each], None if ends is None else ends + each - 1)],
        "second": [
            (["a", "b", "c", "d"][each : 2 * each], None if ends is None else ends + 2 * each - 1)
        ],
    }


def test_reservation_counts_what_it_has_admitted() -> None:
    agent = node("a", 8, free_cpu=4, running=(running("on-a", 4, 9),))
    waiting = [session("head", 6), session("x", 2), session("y", 2), session("z", 2, time_limit=9)]
    result = make_plan([agent], waiting, hol="backfill", num_retries_to_skip=0)
    assert reserved(result) == {"head": [(["a"], 9)]}
    assert placements(result) == {"x": ["a"], "z": ["a"]}
    assert hold(result, "y").reason is Reason.RESERVED


def test_overdue_session_behind_another_one_counts_what_that_takes() -> None:
    """A service that fits beside the first session must not take what the second one needs
    afterwards."""
    agents = [node("a", 8, free_cpu=4, running=(running("r", 4, None),))]
    pending = [late("first", 6), late("second", 8, created=1), session("service", 1, created=2)]
    result = make_plan(agents, pending, **LATE)
    assert placements(result) == {}
    assert reserved(result) == {"first": [(["a"], None)], "second": [(["a"], None)]}


def test_overdue_session_comes_behind_the_first_one_that_starts() -> None:
    agents = [busy("a", 50), busy("b", 9)]
    pending = [late("first"), late("second", created=1), late("third", created=2)]
    result = reserved(make_plan(agents, pending, **LATE))
    assert result == {"first": [(["b"], 9)], "second": [(["a"], 50)], "third": [(["b"], None)]}
    assert reserved(incrementally(agents, pending, **LATE)) == result


def test_what_ends_there_is_no_room_for_it_as_long_as_the_first_one_has_no_start() -> None:
    """The first session needs memory that becomes free at an unknown time; the second one needs
    most of the cores."""
    takes_memory = replace(running("on-a", 0, None), allocations=MEMORY)
    ends = running("ends", 4, 50)
    agents = [node("a", 8, mem=100, free_cpu=4, free_mem=0, running=(takes_memory, ends))]
    pending = [
        late("first", 1, mem=50),
        late("second", 6, created=1),
        session("third", 1, created=2),
    ]
    result = make_plan(agents, pending, hol="skip", **LATE)
    assert reserved(result) == {"first": [(["a"], None)], "second": [(["a"], None)]}
    assert placements(result) == {}


def test_agent_that_is_held_beyond_those_of_a_cluster_is_kept_for_its_largest_kernel() -> None:
    """The cluster waits for cores and for memory. The last agent lacks memory, of which no more may
    be taken."""
    memory = replace(running("m", 0, None, started_at=2), allocations=MEMORY)
    some = (Allocation("mem", DeviceId(""), 60),)
    agents = [
        busy("c", None, started_at=1),
        node("m1", 0, mem=100, free_mem=0, running=(memory,)),
        node(
            "m2",
            1,
            mem=100,
            free_mem=40,
            running=(replace(memory, allocations=some, started_at=4),),
        ),
    ]
    other = KernelRequest(KernelId("k1"), {"mem": 50})
    item = session("s", 4, sub_kernels=(other,), mode="multi-node", created=NOW - 2000)
    x = session("x", 0, mem=10, created=NOW, designated=frozenset({"m2"}))
    result = make_plan(agents, [item, x], max_skip_age=1000, hol="skip")
    assert reserved(result) == {"s": [(["c", "m1", "m2"], None)]}
    assert hold(result, "x").reason is Reason.RESERVED


def test_what_a_pass_has_placed_is_an_end_that_is_known() -> None:
    """This also applies if the times at which work on an agent ends were examined before."""
    agents = [busy("a", 9, cpu=8), node("b", 8, free_cpu=4, running=(running("r", 4, 20),))]
    anywhere: dict[str, Any] = {"designated": frozenset({"a", "b"})}
    assert reserved(make_plan(agents, [session("s", 8, **anywhere)])) == {"s": [(["a"], 9)]}
    first = session("first", 4, priority=90, time_limit=5)
    second = session("second", 4, **anywhere)
    result = make_plan(agents, [first, second])
    assert placements(result) == {"first": ["b"]}
    assert reserved(result) == {"second": [(["b"], 5)]}


@pytest.mark.parametrize(("cpu", "starts"), [(2, True), (3, False)])
def test_what_comes_after_another_session_has_what_that_one_leaves(cpu: int, starts: bool) -> None:
    """At the known end time there is room for the first one, for the second one, and for two more
    cores."""
    agents = [node("a", 16, free_cpu=4, running=(running("r", 12, 50),))]
    pending = [late("first", 8), late("second", 6, created=1), session("third", cpu, created=2)]
    result = make_plan(agents, pending, hol="skip", **LATE)
    assert reserved(result) == {"first": [(["a"], 50)], "second": [(["a"], None)]}
    assert placements(result) == ({"third": ["a"]} if starts else {})


@pytest.mark.parametrize(
    ("parts", "third", "starts"),
    [
        pytest.param((6, 6), {"cpu": 2}, True, id="one kernel of the pair comes there"),
        pytest.param((6, 6), {"cpu": 3}, False, id="and no more is left"),
        pytest.param((2, 8), {"cpu": 1}, False, id="the larger one may come there"),
        pytest.param(
            (6, 6), {"cpu": 2, "mem": 25, "time_limit": 55}, False, id="it is not known when"
        ),
    ],
)
def test_what_comes_after_a_pair_that_has_its_agent_in_two_ways(
    parts: tuple[int, int], third: dict[str, Any], starts: bool
) -> None:
    """The pair gets ``a`` at a known end time, and holds it in case ``c`` becomes free earlier. The
    second session waits for memory there, and needs four of the twelve cores."""
    takes_memory = (Allocation("mem", DeviceId(""), 50),)
    on_a = Running(SessionId("on-a"), KernelId("on-a"), takes_memory, None)
    agents = [
        node("a", 12, mem=100, free_mem=50, running=(on_a,)),
        busy("b", 60, cpu=12 if parts == (6, 6) else 4),
        busy("c", None, cpu=12, started_at=NOW),
    ]
    there: dict[str, Any] = {"designated": frozenset({"a"})}
    pending = [
        cluster("first", *parts, mode="multi-node", bypassed=1),
        late("second", 4, mem=80, created=1, **there),
        session("third", created=2, **third, **there),
    ]
    result = make_plan(agents, pending, hol="skip", **LATE)
    found = reserved(result)
    assert [(sorted(agents), at) for agents, at in found["first"]] == [
        (["a", "b"], 60),
        (["a", "c"], None),
    ]
    assert found["second"] == [(["a"], None)]
    assert placements(result) == ({"third": ["a"]} if starts else {})


@pytest.mark.parametrize("hol", ["strict", "skip", "backfill"])
@pytest.mark.parametrize("strategy", ["fifo", "lifo", "drf"])
def test_overdue_sessions_go_first_in_the_order_of_their_age(hol: str, strategy: str) -> None:
    pending = [
        session("important", 2, created=5, priority=90),
        late("younger", 2, created=3, priority=1, waiting_since=4),
        late("older", 2, created=3, priority=0),
    ]
    result = make_plan([node("a", 4)], pending, hol=hol, strategy=strategy, **LATE)
    assert list(placements(result)) == ["older", "younger"]


@pytest.mark.parametrize("hol", ["strict", "skip", "backfill"])
def test_head_that_nobody_can_help_blocks_nobody(hol: str) -> None:
    """It names an agent with a service. The next one inherits its rights: it is counted as
    overtaken."""
    services = busy("full", None, endpoint_id=EndpointId("e"))
    pending = [
        session("hopeless", 4, designated=frozenset({"full"})),
        session("head", 8, created=1),
        session("next", 1, created=2),
    ]
    result = make_plan([services, node("b", 8, free_cpu=4)], pending, hol=hol)
    assert placements(result) == ({} if hol == "strict" else {"next": ["b"]})
    assert hold(result, "hopeless").capacity
    assert result.bypasses == ({} if hol == "strict" else {"head": 1})
    alone = make_plan([services, node("b", 8)], [pending[0], pending[2]], hol=hol)
    assert placements(alone) == {"next": ["b"]}


@pytest.mark.parametrize(
    ("time_limit", "expected"),
    [
        pytest.param(5, ["a", "b"], id="ends before the reservation starts"),
        pytest.param(6, None, id="ends after that"),
        pytest.param(None, None, id="has no known end"),
    ],
)
def test_cluster_starts_on_reserved_agents_if_it_ends_in_time(
    time_limit: int | None, expected: list[str] | None
) -> None:
    agents = [
        node("a", 4, free_cpu=2, running=(running("r-a", 2, 5),)),
        node("b", 4, free_cpu=2, running=(running("r-b", 2, 3),)),
    ]
    head = cluster("head", 4, 4, mode="multi-node")
    others = cluster("s", 2, 2, mode="multi-node", created=1, time_limit=time_limit)
    result = make_plan(agents, [head, others])
    assert reserved(result) == {"head": [(["b", "a"], 5)]}
    assert placements(result).get("s") == expected
    if expected is None:
        assert hold(result, "s").reason is Reason.RESERVED


def test_want_of_an_agent_is_no_want_of_room_for_clusters() -> None:
    agents = [node("a", 4), node("b", 4, draining=True)]
    for mode, cpus in (("multi-node", (4, 4)), ("single-node", (4, 4))):
        there = [*agents, node("c", 8, fenced=True)] if mode == "single-node" else agents
        held = hold(make_plan(there, [cluster("s", *cpus, mode=mode)], hol="strict"), "s")
        assert (held.reason, held.capacity) == (Reason.NO_ELIGIBLE_AGENT, False)
