"""Preemption, checked against a reference that tries every set of victims, each with every choice
of agents and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import NOW, fit
from tests.examples import examples

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.manager.scheduling import (
    AgentState,
    DeviceState,
    Pending,
    Plan,
    Policy,
    Snapshot,
    plan,
)
from moorage.manager.scheduling.core.model import Allocation, KernelRequest, Running
from moorage.manager.scheduling.core.policy import Preemption

WORLDS = examples(300)
GRACE = 20
Free = dict[tuple[str, str], int]  # by slot and device
REQUESTS: tuple[dict[str, int], ...] = (
    {"cuda.device": 1},
    {"cuda.device": 2},
    {"cuda.shares": 500},
    {"cuda.shares": 1500},
    {"cuda.device": 1, "cpu": 2000},
    {"cpu": 3000},
)


@dataclass
class Draft:
    """An agent while sessions are placed on it."""

    name: str
    free: Free
    running: list[Running]


def take(free: Free, slots: Mapping[str, int]) -> tuple[Allocation, ...] | None:
    """Allocations for ``slots``, which are removed from ``free``."""
    shares = slots.get("cuda.shares", 0) + 1000 * slots.get("cuda.device", 0)
    taken = []
    for (slot, device), amount in sorted(free.items()):
        part = min(shares, 1000) if device else 0
        if part and amount >= part and shares:
            taken.append(Allocation(slot, DeviceId(device), part))
            shares -= part

    cpu = slots.get("cpu", 0)
    if shares or free["cpu", ""] < cpu:
        return None
    if cpu:
        taken.append(Allocation("cpu", DeviceId(""), cpu))

    for slot, device, amount in taken:
        free[slot, device] -= amount

    return tuple(taken)


@st.composite
def full_worlds(draw: st.DrawFn) -> Snapshot:
    """Up to three agents full of sessions, some of which have kernels on several agents; and one
    request."""
    drafts = [
        Draft(name, {("cpu", ""): 4000} | {("cuda.device", f"g{n}"): 1000 for n in range(gpus)}, [])
        for name, gpus in zip(
            "abc", draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)), strict=False
        )
    ]
    for number in range(draw(st.integers(1, 6))):
        fields: dict[str, Any] = {
            "ends_at": draw(
                st.sampled_from([None, None, None, NOW + GRACE, NOW + GRACE + 1, NOW + 5])
            ),
            "started_at": draw(st.sampled_from([NOW - 1, NOW - 2, NOW - 9, NOW - 10, NOW - 30])),
            "priority": draw(st.sampled_from([1, 1, 1, 5, 50])),
            "preemptible": draw(st.integers(0, 7)) > 0,
            "terminating": draw(st.integers(0, 9)) == 0,
            "user": draw(st.sampled_from(["ann", "ann", "bob"])),
            "project": draw(st.sampled_from(["vision", "vision", "speech"])),
            "stop_time": draw(st.sampled_from([None, None, 1, GRACE, GRACE + 30])),
        }
        for kernel in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            draft = draw(st.sampled_from(drafts))
            taken = take(draft.free, draw(st.sampled_from(REQUESTS)))
            if taken is not None:
                name = f"r{number}-{kernel}"
                draft.running.append(
                    Running(SessionId(f"r{number}"), KernelId(name), taken, **fields)
                )

    agents = tuple(
        AgentState(
            AgentId(draft.name),
            frozenset({"process"}),
            engines=frozenset({"custom"}),
            free={"cpu": draft.free["cpu", ""]},
            capacity={"cpu": 4000},
            devices=tuple(
                DeviceState(DeviceId(device), slot, free)
                for (slot, device), free in draft.free.items()
                if device
            ),
            kernels=len(draft.running),
            running=tuple(draft.running),
        )
        for draft in drafts
    )
    item = Pending(
        SessionId("s"), KernelId("k"), 1, draw(st.sampled_from([10, 10, 1])), 0, 0, "process", "custom",
        draw(st.sampled_from(REQUESTS)),
        sub_kernels=tuple(
            KernelRequest(KernelId(f"k{n}"), draw(st.sampled_from(REQUESTS)))
            for n in range(draw(st.sampled_from([0, 0, 1, 1, 2])))
        ),
        mode=draw(st.sampled_from(["multi-node", "multi-node", "single-node"])),
        user="ann", project="vision",
    )  # fmt: skip
    return Snapshot("g", agents, (item,))


ORDERS = st.sampled_from(["newest", "oldest", "smallest"])
AMONG = st.sampled_from(["all", "all", "same-project", "same-user"])
RULES = st.builds(
    Preemption, grace=st.just(GRACE), order=ORDERS, min_runtime=st.sampled_from([0, 9]), among=AMONG
)


# --- the reference


def free_later(agent: AgentState, stopped: frozenset[str]) -> Free:
    free: Free = {("cpu", ""): agent.free["cpu"]} | {
        (d.slot, d.device_id): d.free for d in agent.devices
    }
    for running in agent.running:
        if by_itself(running) or running.session_id in stopped:
            for slot, device, amount in running.allocations:
                free[slot, device] += amount
    return free


def by_itself(running: Running) -> bool:
    return running.terminating or (running.ends_at is not None and running.ends_at <= NOW + GRACE)


def stopped_at(running: Running) -> int:
    return NOW + (GRACE if running.stop_time is None else running.stop_time)


def fits(world: Snapshot, stopped: frozenset[str]) -> bool:
    (item,) = world.pending
    free = [free_later(agent, stopped) for agent in world.agents]
    requests = [kernel.slots for kernel in item.kernels]
    if item.mode == "single-node":
        return any(fit(each, list(requests)) for each in free)
    return any(
        all(fit(each, [slots]) for each, slots in zip(chosen, requests, strict=True))
        for chosen in permutations(free, len(requests))
    )


def candidates(world: Snapshot, rules: Preemption) -> list[str]:
    """In victim order."""
    (item,) = world.pending
    kernels: dict[str, list[Running]] = {}
    for agent in world.agents:
        for running in agent.running:
            if not by_itself(running):
                kernels.setdefault(running.session_id, []).append(running)

    def order(name: str) -> tuple[int, int, int, str]:
        own = kernels[name]
        size = sum(a.amount for running in own for a in running.allocations if a.device_id)
        age = own[0].started_at if rules.order != "newest" else -own[0].started_at
        return own[0].priority, size if rules.order == "smallest" else 0, age, name

    allowed = [
        name
        for name, (first, *_) in kernels.items()
        if first.preemptible
        and first.priority < item.priority
        and NOW - first.started_at >= rules.min_runtime
        and (rules.among != "same-user" or first.user == item.user)
        and (rules.among != "same-project" or first.project == item.project)
    ]
    return sorted(allowed, key=order)


def expected_victims(world: Snapshot, rules: Preemption) -> set[str] | None:
    """None means that the request does not fit, no matter which sessions are stopped."""
    names = candidates(world, rules)
    position = {name: number for number, name in enumerate(names)}
    priority = {r.session_id: r.priority for agent in world.agents for r in agent.running}

    def cost(victims: frozenset[str]) -> tuple[int, int, list[int]]:
        highest = max((priority[SessionId(name)] for name in victims), default=-1)
        return highest, len(victims), sorted((position[name] for name in victims), reverse=True)

    sets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    enough = [frozenset(each) for each in sets if fits(world, frozenset(each))]
    return set(min(enough, key=cost)) if enough else None


def victims_of(made: Plan) -> Iterator[str]:
    return (victim.session_id for victim in made.victims)


@WORLDS
@given(full_worlds(), RULES)
def test_victims_are_the_fewest_and_the_first_of_the_order(
    world: Snapshot, rules: Preemption
) -> None:
    made = plan(world, Policy(preemption=rules), NOW)
    if made.places:
        assert not made.victims
        return

    expected = expected_victims(world, rules)
    assert set(victims_of(made)) == (expected or set())
    if expected:
        (reservation,) = made.reservations
        running = [running for agent in world.agents for running in agent.running]

        # The session starts later if other work that must end first takes longer than the victims.
        ends = [r.ends_at or stopped_at(r) for r in running if by_itself(r)]
        assert reservation.basis == "preemption"
        assert reservation.starts_at in [
            *(stopped_at(r) for r in running if r.session_id in expected),
            *ends,
        ]

        for victim in made.victims:
            assert NOW + victim.grace == max(
                stopped_at(r) for r in running if r.session_id == victim.session_id
            )

        assert set(reservation.waits_for) >= expected


@WORLDS
@given(full_worlds(), RULES)
def test_reservation_begins_when_the_request_fits(world: Snapshot, rules: Preemption) -> None:
    """The session does not start earlier: at its start, enough has ended on its agents, but a
    moment before, it had not."""
    made = plan(world, Policy(preemption=rules), NOW)
    if made.places or not made.reservations or made.reservations[0].starts_at is None:
        return

    (reservation,) = made.reservations
    stopped = frozenset(victims_of(made))
    agents = {agent.agent_id: agent for agent in world.agents}
    (item,) = world.pending

    def ends_at(running: Running) -> int | None:
        if running.session_id in stopped and not by_itself(running):
            return stopped_at(running)
        return (
            stopped_at(running)
            if running.terminating and running.ends_at is None
            else running.ends_at
        )

    def fits_at(at: int) -> bool:
        free = []
        for name in reservation.agents:
            ends = {running.kernel_id: ends_at(running) for running in agents[name].running}
            gone = tuple(
                replace(running, terminating=True)
                for running in agents[name].running
                if (end := ends[running.kernel_id]) is not None and max(end, NOW) <= at
            )
            free.append(free_later(replace(agents[name], running=gone), frozenset()))

        requests = [kernel.slots for kernel in item.kernels]
        if item.mode == "single-node":
            return fit(free[0], list(requests))

        return all(fit(each, [slots]) for each, slots in zip(free, requests, strict=True))

    assert reservation.starts_at is not None
    assert fits_at(reservation.starts_at)
    assert reservation.basis != "preemption" or not fits_at(reservation.starts_at - 1)


def test_hopeless_requests_do_not_use_up_the_searches_of_others() -> None:
    gpus = tuple(DeviceState(DeviceId(f"g{n}"), "cuda.device", 0) for n in range(4))
    held = tuple(Allocation("cuda.device", device.device_id, 1000) for device in gpus)
    runs = Running(SessionId("low"), KernelId("low"), held[:1], priority=1, preemptible=True)
    stays = Running(SessionId("stays"), KernelId("stays"), held[1:], priority=1)
    agent = AgentState(
        AgentId("a"), frozenset({"process"}), frozenset({"custom"}), {"cpu": 0}, {"cpu": 99_000}, gpus,
        running=(runs, stays),
    )  # fmt: skip
    hopeless = [
        Pending(
            SessionId(f"h{n:02}"), KernelId(f"h{n:02}"), 1, 90, 0, 0, "process", "custom",
            {"cuda.device": 2, "cpu": 40_000 - n},
        )
        for n in range(40)
    ]  # fmt: skip
    last = Pending(
        SessionId("s"),
        KernelId("s"),
        revision=1,
        priority=80,
        created=9,
        retries=0,
        runtime="process",
        engine="custom",
        slots={"cuda.device": 1},
    )
    made = plan(Snapshot("g", (agent,), (*hopeless, last)), Policy(preemption=Preemption()), NOW)
    assert [(victim.session_id, victim.for_session) for victim in made.victims] == [("low", "s")]


def test_owners_are_searched_for_apart() -> None:
    """Refusing one session says nothing about another, although both request the same."""
    gpu = Allocation("cuda.device", DeviceId("g0"), 1000)
    cpu = Allocation("cpu", DeviceId(""), 1000)
    agent = AgentState(
        AgentId("a"), frozenset({"process"}), frozenset({"custom"}), {"cpu": 0}, {"cpu": 1000},
        (DeviceState(DeviceId("g0"), "cuda.device", 0),),
        running=(
            Running(SessionId("a"), KernelId("a"), (cpu,), priority=1, preemptible=True, user="ann"),
            Running(SessionId("b"), KernelId("b"), (gpu,), priority=1, preemptible=True, user="bob"),
        ),
    )  # fmt: skip
    pending = tuple(
        Pending(
            SessionId(f"s-{user}"), KernelId(f"s-{user}"), 1, priority, 0, 0, "process", "custom",
            {"cuda.device": 1}, user=user,
        )
        for user, priority in (("ann", 90), ("bob", 80))
    )  # fmt: skip
    made = plan(
        Snapshot("g", (agent,), pending), Policy(preemption=Preemption(among="same-user")), NOW
    )
    assert [(victim.session_id, victim.for_session) for victim in made.victims] == [("b", "s-bob")]


@pytest.mark.parametrize("order", ["newest", "oldest", "smallest"])
def test_many_sessions_on_one_agent(order: Any) -> None:
    """There are too many victims to try every set of them, but the smallest number is still
    found."""
    agent = AgentState(
        AgentId("a"), frozenset({"process"}), frozenset({"custom"}), {"cpu": 0}, {"cpu": 60_000},
        running=tuple(
            Running(
                SessionId(f"r{n:02}"), KernelId(f"r{n:02}"), 
                (Allocation("cpu", DeviceId(""), 1000 * (1 + n % 3)),),
                started_at=n, priority=1, preemptible=True,
            )
            for n in range(30)
        ),
    )  # fmt: skip
    item = Pending(
        SessionId("s"),
        KernelId("k"),
        revision=1,
        priority=10,
        created=0,
        retries=0,
        runtime="process",
        engine="custom",
        slots={"cpu": 10_000},
    )
    made = plan(Snapshot("g", (agent,), (item,)), Policy(preemption=Preemption(order=order)), NOW)
    size = {running.session_id: running.allocations[0].amount for running in agent.running}
    freed = [size[victim.session_id] for victim in made.victims]
    assert len(freed) == 4
    assert sum(freed) >= 10_000
    assert sum(freed) - min(freed) < 10_000


def gpu_agent(name: str, *sessions: tuple[str, int]) -> AgentState:
    """``sessions`` with their start times; each uses one GPU."""
    devices = tuple(DeviceState(DeviceId(f"g{n}"), "cuda.device", 0) for n in range(len(sessions)))
    running = tuple(
        Running(
            SessionId(session), KernelId(f"{session}-{name}"),
            (Allocation("cuda.device", device.device_id, 1000),), None, started, 1, preemptible=True,
        )
        for device, (session, started) in zip(devices, sessions, strict=True)
    )  # fmt: skip
    serves = frozenset({"process"}), frozenset({"custom"})

    return AgentState(
        AgentId(name), *serves, {}, {}, devices, running=running, kernels=len(running)
    )


def gpu_request(name: str, *gpus: int, priority: int = 10) -> Pending:
    first, *others = gpus
    return Pending(
        SessionId(name), KernelId(name), 1, priority, 0, 0, "process", "custom", {"cuda.device": first},
        sub_kernels=tuple(
            KernelRequest(KernelId(f"{name}-{n}"), {"cuda.device": count}) for n, count in enumerate(others)
        ),
        mode="multi-node",
    )  # fmt: skip


def stopped(
    agents: list[AgentState], *pending: Pending, rules: Preemption | None = None
) -> list[tuple[str, str]]:
    made = plan(
        Snapshot("g", tuple(agents), pending), Policy(preemption=rules or Preemption()), NOW
    )
    return [(victim.session_id, victim.for_session) for victim in made.victims]


def test_cluster_on_many_agents_stops_the_first_of_the_order() -> None:
    """There are more agents than one search considers."""
    agents = [gpu_agent(f"a{n:02}", (f"r{n:02}", n * 7 % 20)) for n in range(20)]
    newest = sorted(range(20), key=lambda n: -(n * 7 % 20))[:3]
    assert sorted(stopped(agents, gpu_request("s", 1, 1, 1))) == [
        (f"r{n:02}", "s") for n in sorted(newest)
    ]


def test_two_sessions_of_low_priority_rather_than_one_of_higher() -> None:
    low = gpu_agent("a", ("r1", 900), ("r2", 910))
    high = gpu_agent("b", ("r3", 950), ("r3", 950))
    more = tuple(replace(running, priority=5) for running in high.running)
    assert stopped([low, high], gpu_request("s", 2)) == [("r3", "s")]
    victims = stopped([low, replace(high, running=more)], gpu_request("s", 2))
    assert sorted(victims) == [("r1", "s"), ("r2", "s")]


def test_session_is_not_stopped_while_one_of_its_kernels_is_protected() -> None:
    agents = [gpu_agent("a", ("wide", 100)), gpu_agent("b", ("wide", 990))]
    assert stopped(agents, gpu_request("s", 1), rules=Preemption(min_runtime=10)) == [("wide", "s")]
    assert stopped(agents, gpu_request("s", 1), rules=Preemption(min_runtime=11)) == []


def test_cluster_on_few_agents_stops_another_cluster_rather_than_several_sessions() -> None:
    agents = [gpu_agent(name, ("wide", 900), (f"new-{name}", 950)) for name in ("a", "b")]
    assert stopped(agents, gpu_request("s", 1, 1)) == [("wide", "s")]


def test_cluster_on_many_agents_stops_another_cluster_rather_than_several_sessions() -> None:
    agents = [gpu_agent(f"a{n:02}", (f"r{n:02}", 900)) for n in range(18)]
    agents += [gpu_agent(f"b{n}", ("wide", 950)) for n in range(2)]
    assert stopped(agents, gpu_request("s", 1, 1)) == [("wide", "s")]


def test_cluster_spares_what_another_victim_has_made_unnecessary() -> None:
    """``x`` alone would do for the first kernel; ``wide``, which the second kernel needs, also
    frees a GPU there."""
    agents = [gpu_agent("a", ("x", 990), ("wide", 950)), gpu_agent("b", ("wide", 950))]
    agents += [gpu_agent(f"c{n:02}", (f"r{n:02}", 900)) for n in range(12)]
    assert stopped(agents, gpu_request("s", 1, 1)) == [("wide", "s")]


def test_what_a_victim_frees_elsewhere_serves_the_next_request() -> None:
    agents = [
        gpu_agent("a", ("wide", 950)),
        gpu_agent("b", ("wide", 950)),
        gpu_agent("c", ("other", 1)),
    ]
    assert stopped(agents, gpu_request("s", 1), gpu_request("t", 1, priority=9)) == [("wide", "s")]


def test_every_search_has_its_victims_in_the_end() -> None:
    """A pass makes at most a few searches. Sessions that only wait for victims to stop are not
    counted."""
    agents = [gpu_agent(f"a{n:02}", (f"r{n:02}", n)) for n in range(40)]
    pending = [gpu_request(f"s{n:02}", 1) for n in range(40)]
    for _ in range(3):
        victims = {name for name, _ in stopped(agents, *pending)}
        agents = [
            replace(
                agent,
                running=tuple(
                    replace(
                        running, terminating=running.terminating or running.session_id in victims
                    )
                    for running in agent.running
                ),
            )
            for agent in agents
        ]

    assert all(running.terminating for agent in agents for running in agent.running)
