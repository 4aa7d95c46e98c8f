"""Tables for the planner's rules: queue order, choice of agent and devices, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import (
    AgentState,
    DeviceState,
    Pending,
    Policy,
    Snapshot,
    plan,
    refusal_message,
)
from moorage.manager.scheduling.core.order import sort_pending
from moorage.manager.scheduling.core.results import HeldSession, Place, Plan, Refusal, RefusalKind

GIB = 1024**3


def gpus_free(*free: int) -> tuple[DeviceState, ...]:
    return tuple(
        DeviceState(DeviceId(f"{i}"), "cuda.device", amount) for i, amount in enumerate(free)
    )


def agent(
    name: str,
    cpu: int = 8,
    mem: int = 32,
    gpus: tuple[int, ...] = (),
    *,
    used_cpu: int = 0,
    **fields: Any,
) -> AgentState:
    """``gpus``: the free part of each GPU, in 1/1000; ``cpu`` is in cpus, ``mem`` in GiB."""
    capacity = {"cpu": cpu * 1000, "mem": mem * GIB}
    return AgentState(
        AgentId(name),
        fields.pop("runtimes", frozenset({"process"})),
        fields.pop("engines", frozenset({"custom", "vllm"})),
        free=capacity | {"cpu": (cpu - used_cpu) * 1000},
        capacity=capacity,
        devices=fields.pop("devices", gpus_free(*gpus)),
        **fields,
    )


def pending_session(
    name: str, slots: Mapping[str, int] | None = None, created: int = 0, **fields: Any
) -> Pending:
    return Pending(
        SessionId(name),
        KernelId(f"k-{name}"),
        revision=fields.pop("revision", 1),
        priority=fields.pop("priority", 10),
        created=created,
        retries=fields.pop("retries", 0),
        runtime=fields.pop("runtime", "process"),
        engine=fields.pop("engine", "custom"),
        slots=slots if slots is not None else {"cpu": 1000},
        **fields,
    )


def run(agents: list[AgentState], pending: list[Pending], **policy: Any) -> Plan:
    return plan(Snapshot("default", tuple(agents), tuple(pending)), Policy(**policy))


def placements(result: Plan) -> dict[str, str]:
    return {place.session_id: place.agent_id for place in result.places}


def hold_of(result: Plan, name: str) -> HeldSession:
    (hold,) = (hold for hold in result.holds if hold.session_id == name)
    return hold


def devices_of(place: Place) -> list[tuple[str, int]]:
    return [
        (allocation.device_id, allocation.amount)
        for allocation in place.allocations
        if allocation.slot == "cuda.device"
    ]


QUEUE = [
    pending_session("young", created=3),
    pending_session("old-tried", created=1, retries=2),
    pending_session("old", created=2),
    pending_session("urgent-tried", created=9, priority=50, retries=7),
    pending_session("twin-b", created=2, priority=5),
    pending_session("twin-a", created=2, priority=5),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy("strict"), ["urgent-tried", "old-tried", "old", "young", "twin-a", "twin-b"]),
        (Policy("skip", 0), ["urgent-tried", "old-tried", "old", "young", "twin-a", "twin-b"]),
        (Policy("skip", 2), ["urgent-tried", "old", "young", "old-tried", "twin-a", "twin-b"]),
        (Policy("skip", 3), ["urgent-tried", "old-tried", "old", "young", "twin-a", "twin-b"]),
    ],
)
def test_queue_order(policy: Policy, expected: list[str]) -> None:
    assert [item.session_id for item in sort_pending(QUEUE, policy)] == expected
    assert sort_pending(reversed(QUEUE), policy) == sort_pending(QUEUE, policy)


CPU_SMALL = agent("b-small", cpu=4)
CPU_LARGE = agent("a-large", cpu=16)
GPU_NODE = agent("a-gpu", cpu=4, gpus=(1000, 1000))


@pytest.mark.parametrize(
    ("selection", "agents", "slots", "expected"),
    [
        ("concentrated", [CPU_LARGE, CPU_SMALL], {"cpu": 1000}, "b-small"),
        ("dispersed", [CPU_LARGE, CPU_SMALL], {"cpu": 1000}, "a-large"),
        ("concentrated", [CPU_LARGE, CPU_SMALL], {"cpu": 8000}, "a-large"),
        # With any selection, work that needs no GPU is placed on a node without GPUs if it fits on
        # one.
        ("concentrated", [GPU_NODE, CPU_LARGE], {"cpu": 1000}, "a-large"),
        ("dispersed", [GPU_NODE, CPU_SMALL], {"cpu": 1000}, "b-small"),
        ("concentrated", [GPU_NODE], {"cpu": 1000}, "a-gpu"),
        ("concentrated", [GPU_NODE, CPU_LARGE], {"cuda.device": 1}, "a-gpu"),
        # GPUs are compared before cpu and memory.
        (
            "concentrated",
            [agent("a", cpu=2, gpus=(1000, 1000)), agent("b", cpu=64, gpus=(1000, 0))],
            {"cpu": 1000, "cuda.device": 1},
            "b",
        ),
        (
            "dispersed",
            [agent("a", cpu=2, gpus=(1000, 1000)), agent("b", cpu=64, gpus=(1000, 0))],
            {"cpu": 1000, "cuda.device": 1},
            "a",
        ),
        # Ties go to the smaller id, in any order of rows.
        ("concentrated", [agent("z"), agent("a"), agent("m")], {"cpu": 1000}, "a"),
        ("dispersed", [agent("z"), agent("a"), agent("m")], {"cpu": 1000}, "a"),
        # A request for zero is satisfied even if the slot is unknown.
        ("concentrated", [agent("a")], {"cpu": 1000, "cuda.device": 0, "rocm.shares": 0}, "a"),
        # Capacity that shrank below its usage does not affect requests for other slots.
        ("concentrated", [agent("a", cpu=2, used_cpu=4)], {"mem": GIB}, "a"),
        ("concentrated", [agent("a", cpu=2, used_cpu=4)], {}, "a"),
    ],
)
def test_agent_selection(
    selection: str, agents: list[AgentState], slots: dict[str, int], expected: str
) -> None:
    assert placements(run(agents, [pending_session("s", slots)], agent_selection=selection)) == {
        "s": expected
    }
    assert placements(
        run(agents[::-1], [pending_session("s", slots)], agent_selection=selection)
    ) == {"s": expected}


@pytest.mark.parametrize(
    ("gpus", "slots", "expected"),
    [
        ((1000, 1000, 1000), {"cuda.device": 2}, [("0", 1000), ("1", 1000)]),
        ((700, 1000, 1000), {"cuda.device": 2}, [("1", 1000), ("2", 1000)]),
        # Shares fill the fullest device that can take them; a whole one is split only if no other
        # can.
        ((1000, 500, 300), {"cuda.shares": 300}, [("2", 300)]),
        ((1000, 500, 300), {"cuda.shares": 400}, [("1", 400)]),
        ((1000, 500, 300), {"cuda.shares": 600}, [("0", 600)]),
        ((1000, 1000), {"cuda.shares": 1000}, [("0", 1000)]),
        # More shares than a device has: whole devices and a fraction of one more.
        ((1000, 1000, 600), {"cuda.shares": 1500}, [("0", 1000), ("2", 500)]),
        ((1000, 1000, 400), {"cuda.device": 1, "cuda.shares": 500}, [("0", 1000), ("1", 500)]),
        ((1000,) * 12, {"cuda.device": 11}, [(str(i), 1000) for i in range(11)]),
    ],
)
def test_device_selection(
    gpus: tuple[int, ...], slots: dict[str, int], expected: list[tuple[str, int]]
) -> None:
    (place,) = run([agent("a", gpus=gpus)], [pending_session("s", slots)]).places
    assert devices_of(place) == expected


@pytest.mark.parametrize(
    ("gpus", "slots"),
    [
        ((500, 500), {"cuda.device": 1}),  # two halves do not make a whole device
        ((500, 500), {"cuda.shares": 600}),
        ((1000, 400), {"cuda.shares": 1500}),
        ((1000, 1000), {"cuda.device": 2, "cuda.shares": 1}),
    ],
)
def test_used_devices_do_not_add_up_to_a_whole_one(
    gpus: tuple[int, ...], slots: dict[str, int]
) -> None:
    assert (
        run([agent("a", gpus=(*gpus, 0))], [pending_session("s", slots)]).holds[0].reason
        is Reason.INSUFFICIENT_RESOURCES
    )


def test_want_of_a_healthy_device_is_no_want_of_room() -> None:
    sick = (DeviceState(DeviceId("0"), "cuda.device", 1000, healthy=False),)
    result = run([agent("a", devices=sick)], [pending_session("s", {"cuda.device": 1})])
    assert result.holds == (
        HeldSession(
            SessionId("s"),
            Reason.NO_ELIGIBLE_AGENT,
            (Refusal(RefusalKind.UNHEALTHY, "cuda.device", 1, 0),),
        ),
    )
    assert refusal_message(result.holds[0].refusals[0]) == (
        "1 agent: needs 1 cuda.device, has 0 without its unhealthy devices"
    )


def test_place_lists_all_allocations_and_the_revision() -> None:
    result = run(
        [agent("a", gpus=(1000,))],
        [pending_session("s", {"mem": GIB, "cpu": 500, "cuda.device": 1}, revision=7)],
    )
    (place,) = result.places
    assert (place.session_id, place.kernel_id, place.revision, place.agent_id) == (
        "s",
        "k-s",
        7,
        "a",
    )
    assert [(t.slot, t.device_id, t.amount) for t in place.allocations] == [
        ("cuda.device", "0", 1000),
        ("cpu", "", 500),
        ("mem", "", GIB),
    ]


def test_sessions_of_one_pass_see_each_others_allocations() -> None:
    pending = [pending_session(f"s{i}", {"cuda.device": 1}, created=i) for i in range(4)]
    result = run([agent("a", gpus=(1000, 1000)), agent("b", gpus=(1000,))], pending)
    assert placements(result) == {"s0": "b", "s1": "a", "s2": "a"}
    assert hold_of(result, "s3").refusals == (
        Refusal(RefusalKind.CAPACITY, "cuda.device", 1, 0, agents=2),
    )


BIG = {"cpu": 4000}
SMALL = {"cpu": 1000}


@pytest.mark.parametrize(
    ("policy", "placed", "untried", "charged"),
    [
        ({"hol": "strict"}, ["first"], ["small", "low"], ["big"]),
        ({"hol": "skip", "num_retries_to_skip": 0}, ["first"], ["small", "low"], ["big"]),
        ({"hol": "skip", "num_retries_to_skip": 1}, ["first", "small", "low"], [], ["big"]),
    ],
)
def test_blocked_head(
    policy: dict[str, Any], placed: list[str], untried: list[str], charged: list[str]
) -> None:
    pending = [
        pending_session("low", SMALL, created=0, priority=1),
        pending_session("first", {"cpu": 2000}, created=1),
        pending_session("big", BIG, created=2),
        pending_session("small", SMALL, created=3),
    ]
    result = run([agent("a", cpu=4)], pending, **policy)
    assert list(placements(result)) == placed
    assert [hold.session_id for hold in result.holds if not hold.attempted] == untried
    assert [hold.session_id for hold in result.holds if hold.capacity] == charged
    assert all(
        hold.blocked_by == "big" and hold.reason is Reason.INSUFFICIENT_RESOURCES
        for hold in result.holds[1:]
    )


@pytest.mark.parametrize("policy", [{"hol": "strict"}, {"hol": "skip", "num_retries_to_skip": 1}])
@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (pending_session("head", {"cpu": 64_000}), Reason.INFEASIBLE),
        (pending_session("head", {"rocm.device": 1}), Reason.INFEASIBLE),
        (pending_session("head", runtime="docker"), Reason.NO_ELIGIBLE_AGENT),
        (pending_session("head", engine="llamacpp"), Reason.NO_ELIGIBLE_AGENT),
        (pending_session("head", avoid=frozenset({AgentId("a")})), Reason.NO_ELIGIBLE_AGENT),
    ],
)
def test_refusals_other_than_capacity_block_nobody_and_count_no_retry(
    policy: dict[str, Any], head: Pending, reason: Reason
) -> None:
    result = run([agent("a", cpu=4)], [head, pending_session("next", SMALL, created=1)], **policy)
    assert placements(result) == {"next": "a"}
    assert (result.holds[0].reason, result.holds[0].attempted, result.holds[0].capacity) == (
        reason,
        True,
        False,
    )


SMALL_BUSY = agent("a", cpu=4, used_cpu=4)
HUGE_SILENT = agent("b", cpu=64, available=False)


@pytest.mark.parametrize(
    ("agents", "item", "reason", "messages"),
    [
        ([], pending_session("s"), Reason.NO_ELIGIBLE_AGENT, ["the resource group has no agent"]),
        (
            [HUGE_SILENT],
            pending_session("s"),
            Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: silent, disconnected or not ready"],
        ),
        (
            [SMALL_BUSY],
            pending_session("s", {"cpu": 1500}),
            Reason.INSUFFICIENT_RESOURCES,
            ["1 agent: needs 1.5 cpu, 0 free"],
        ),
        (
            [SMALL_BUSY, HUGE_SILENT],
            pending_session("s"),
            Reason.INSUFFICIENT_RESOURCES,
            ["1 agent: needs 1 cpu, 0 free", "1 agent: silent, disconnected or not ready"],
        ),
        # The disconnected agent could run it later, so the session stays pending.
        (
            [SMALL_BUSY, HUGE_SILENT],
            pending_session("s", {"cpu": 8000}),
            Reason.NO_ELIGIBLE_AGENT,
            [
                "1 agent: needs 8 cpu, has 4 even when empty",
                "1 agent: silent, disconnected or not ready",
            ],
        ),
        (
            [SMALL_BUSY, HUGE_SILENT],
            pending_session("s", {"cpu": 65_000}),
            Reason.INFEASIBLE,
            ["2 agents: needs 65 cpu, has at most 64 even when empty"],
        ),
        (
            [
                SMALL_BUSY,
                agent("b", engines=frozenset({"vllm"})),
                agent("c", runtimes=frozenset({"fake"})),
            ],
            pending_session("s", {"mem": 64 * GIB}),
            Reason.INFEASIBLE,
            [
                "1 agent: has no engine custom; install it there (`moorage doctor`)",
                "1 agent: needs 64GiB mem, has 32GiB even when empty",
                "1 agent: has no runtime process",
            ],
        ),
        (
            [agent("a", gpus=(1000, 200)), agent("b", gpus=(300, 0)), agent("c", gpus=(0, 0))],
            pending_session("s", {"cuda.device": 2}),
            Reason.INSUFFICIENT_RESOURCES,
            ["3 agents: needs 2 cuda.device, at most 1 free"],
        ),
        (
            [agent("a", gpus=(200,)), agent("b", gpus=(300,))],
            pending_session("s", {"cuda.shares": 500}),
            Reason.INSUFFICIENT_RESOURCES,
            ["2 agents: needs 0.5 cuda.shares, at most 0.3 free"],
        ),
        (
            [agent("a"), agent("b", cpu=1, used_cpu=1)],
            pending_session("s", avoid=frozenset({AgentId("a")})),
            Reason.INSUFFICIENT_RESOURCES,
            [
                "1 agent: avoided: an earlier start of this session failed there",
                "1 agent: needs 1 cpu, 0 free",
            ],
        ),
    ],
)
def test_refusal_messages(
    agents: list[AgentState], item: Pending, reason: Reason, messages: list[str]
) -> None:
    (hold,) = run(agents, [item]).holds
    assert hold.reason is reason
    assert [refusal_message(refusal) for refusal in hold.refusals] == messages
    assert hold.capacity == (reason is Reason.INSUFFICIENT_RESOURCES)


def test_larger_request_than_a_refused_one_gets_its_own_numbers_and_reason() -> None:
    agents = [agent("a", cpu=8, used_cpu=7), agent("b", cpu=64, available=False)]
    pending = [
        pending_session(name, {"cpu": cpus * 1000}, created=cpus)
        for name, cpus in [("two", 2), ("four", 4), ("nine", 9), ("ten", 10), ("too-many", 65)]
    ]
    result = run(agents, pending)
    assert {hold.session_id: hold.reason for hold in result.holds} == {
        "two": Reason.INSUFFICIENT_RESOURCES,
        "four": Reason.INSUFFICIENT_RESOURCES,
        "nine": Reason.NO_ELIGIBLE_AGENT,
        "ten": Reason.NO_ELIGIBLE_AGENT,
        "too-many": Reason.INFEASIBLE,
    }
    four = hold_of(result, "four").refusals
    assert [refusal_message(refusal) for refusal in four][:1] == ["1 agent: needs 4 cpu, 1 free"]


def test_ten_thousand_sessions_that_do_not_fit_examine_each_agent_once() -> None:
    """Counts how often the planner reads an agent's runtimes."""
    reads = 0

    class Counting(frozenset[str]):
        def __contains__(self, runtime: object) -> bool:
            nonlocal reads
            reads += 1
            return super().__contains__(runtime)

    agents = [
        agent(f"a{i:03}", cpu=64, used_cpu=63, runtimes=Counting({"process"})) for i in range(200)
    ]
    pending = [pending_session(f"s{i}", {"cpu": 2000 + i % 50}, created=i) for i in range(10_000)]
    result = run(agents, pending)
    assert len(result.holds) == 10_000

    # Once for all sessions with these constraints; the 49 larger shapes share the first refusal.
    assert reads == len(agents)
    assert {hold.refusals[0].requested for hold in result.holds} == set(range(2000, 2050))
