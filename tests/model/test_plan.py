"""Properties of every plan under strict and skip, with a reference that tries every choice of
devices."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import (
    AgentState,
    DeviceState,
    Pending,
    Plan,
    Policy,
    Snapshot,
    plan,
)
from moorage.manager.scheduling.core.order import sort_pending
from moorage.manager.scheduling.core.results import Place, RefusalKind

SHARE = st.sampled_from([0, 100, 250, 500, 750, 999, 1000])


@st.composite
def agents(draw: st.DrawFn, name: str) -> AgentState:
    capacity = {"cpu": draw(st.integers(0, 8)) * 1000, "mem": draw(st.integers(0, 8)) * 100}
    devices = tuple(
        DeviceState(
            DeviceId(f"{slot[0]}{i}"),
            slot,
            free=draw(SHARE),
            capacity=1000,
            healthy=draw(st.integers(0, 5)) > 0,
        )
        for slot in ("cuda.device", "rocm.device")
        for i in range(draw(st.integers(0, 3)))
    )
    return AgentState(
        AgentId(name),
        frozenset(draw(st.sets(st.sampled_from(["process", "fake"]), min_size=1))),
        engines=frozenset(draw(st.sets(st.sampled_from(["custom", "vllm"]), min_size=1))),
        free={slot: draw(st.integers(-100, amount)) for slot, amount in capacity.items()},
        capacity=capacity,
        devices=devices,
        available=draw(st.integers(0, 5)) > 0,
    )


SLOTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 9).map(lambda cpus: cpus * 1000),
        "mem": st.integers(0, 900),
        "cuda.device": st.integers(0, 3),
        "cuda.shares": st.sampled_from([0, 100, 250, 500, 1000, 1500, 2600]),
        "rocm.shares": SHARE,
    },
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    names = [f"a{i}" for i in range(draw(st.integers(0, 5)))]
    pending = [
        Pending(
            SessionId(f"s{i}"),
            KernelId(f"k{i}"),
            revision=draw(st.integers(1, 9)),
            priority=draw(st.sampled_from([10, 10, 50])),
            created=draw(st.integers(0, 5)),
            retries=draw(st.integers(0, 3)),
            runtime=draw(st.sampled_from(["process", "process", "fake", "docker"])),
            engine=draw(st.sampled_from(["custom", "custom", "vllm"])),
            slots=draw(SLOTS),
            avoid=frozenset(
                map(AgentId, draw(st.sets(st.sampled_from(names), max_size=2)) if names else ())
            ),
        )
        for i in range(draw(st.integers(0, 12)))
    ]
    return Snapshot("g", tuple(draw(agents(name)) for name in names), tuple(pending))


POLICIES = st.builds(
    Policy,
    st.sampled_from(["strict", "skip"]),
    st.integers(0, 2),
    st.sampled_from(["concentrated", "dispersed"]),
)
WORLD = examples(120)


def could_run(agent: AgentState, item: Pending) -> bool:
    serves = item.runtime in agent.runtimes and item.engine in agent.engines
    return serves and agent.available and agent.agent_id not in item.avoid


def fits(agent: AgentState, item: Pending) -> bool:
    """Found by trying every choice of healthy devices. Shares no code with the planner."""
    for slot in ("cpu", "mem"):
        if item.slots.get(slot, 0) > max(0, agent.free.get(slot, 0)):
            return False

    for family in ("cuda", "rocm"):
        shares = item.slots.get(f"{family}.shares", 0)
        whole = item.slots.get(f"{family}.device", 0) + shares // 1000
        part = shares % 1000
        free = [d.free for d in agent.devices if d.slot == f"{family}.device" and d.healthy]
        if not any(
            all(free[i] == 1000 for i in chosen)
            and (not part or any(free[i] >= part for i in range(len(free)) if i not in chosen))
            for chosen in combinations(range(len(free)), whole)
        ):
            return False

    return True


def after(agent: AgentState, place: Place) -> AgentState:
    taken = {
        (allocation.slot, allocation.device_id): allocation.amount
        for allocation in place.allocations
    }
    return replace(
        agent,
        free={slot: free - taken.get((slot, DeviceId("")), 0) for slot, free in agent.free.items()},
        devices=tuple(
            replace(d, free=d.free - taken.get((d.slot, d.device_id), 0)) for d in agent.devices
        ),
    )


def replay(
    snapshot: Snapshot, policy: Policy, answer: Plan
) -> list[tuple[Pending, dict[str, AgentState]]]:
    """Each session in queue order, with the agents as they were just before it was tried."""
    places = {place.session_id: place for place in answer.places}
    world: dict[str, AgentState] = {agent.agent_id: agent for agent in snapshot.agents}
    steps = []
    for item in sort_pending(snapshot.pending, policy):
        steps.append((item, dict(world)))
        if place := places.get(item.session_id):
            world[place.agent_id] = after(world[place.agent_id], place)

    return steps


@WORLD
@given(snapshots(), POLICIES, st.integers())
def test_plan_does_not_depend_on_the_order_of_rows(
    snapshot: Snapshot, policy: Policy, seed: int
) -> None:
    shuffled = random.Random(seed)
    mixed = Snapshot(
        snapshot.group,
        tuple(
            replace(agent, devices=tuple(shuffled.sample(agent.devices, len(agent.devices))))
            for agent in shuffled.sample(snapshot.agents, len(snapshot.agents))
        ),
        tuple(shuffled.sample(snapshot.pending, len(snapshot.pending))),
    )
    assert plan(mixed, policy) == plan(snapshot, policy) == plan(snapshot, policy)


@WORLD
@given(snapshots(), POLICIES)
def test_every_session_gets_one_place_or_hold(snapshot: Snapshot, policy: Policy) -> None:
    answer = plan(snapshot, policy)
    answered = Counter([p.session_id for p in answer.places] + [h.session_id for h in answer.holds])
    assert answered == Counter(item.session_id for item in snapshot.pending)


@WORLD
@given(snapshots(), POLICIES)
def test_place_allocates_exactly_the_request_from_free_capacity(
    snapshot: Snapshot, policy: Policy
) -> None:
    answer = plan(snapshot, policy)
    pending = {item.session_id: item for item in snapshot.pending}
    agents_by_id = {agent.agent_id: agent for agent in snapshot.agents}
    used: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for place in answer.places:
        item = pending[place.session_id]
        agent = agents_by_id[place.agent_id]
        assert (place.kernel_id, place.revision) == (item.kernel_id, item.revision)
        assert could_run(agent, item)
        given: Counter[str] = Counter()
        for take in place.allocations:
            assert take.amount > 0
            used[agent.agent_id, take.slot, take.device_id] += take.amount
            given[take.slot] += take.amount

        asked = Counter({slot: item.slots.get(slot, 0) for slot in ("cpu", "mem")})
        for family in ("cuda", "rocm"):
            shares = item.slots.get(f"{family}.shares", 0)
            asked[f"{family}.device"] = item.slots.get(f"{family}.device", 0) * 1000 + shares
            amounts = [take.amount for take in place.allocations if take.slot == f"{family}.device"]
            assert sum(amount < 1000 for amount in amounts) <= 1

        assert +given == +asked

    for (agent_id, slot, device_id), amount in used.items():
        agent = agents_by_id[AgentId(agent_id)]
        if device_id:
            (device,) = (d for d in agent.devices if (d.slot, d.device_id) == (slot, device_id))
            assert device.healthy
            assert amount <= device.free <= 1000
        else:
            assert amount <= agent.free[slot]


@WORLD
@given(snapshots(), POLICIES)
def test_session_is_held_only_if_it_fits_nowhere_when_tried(
    snapshot: Snapshot, policy: Policy
) -> None:
    """This includes refusals from the cache: a session that is refused without being examined
    really fits nowhere."""
    answer = plan(snapshot, policy)
    holds = {hold.session_id: hold for hold in answer.holds}
    for item, world in replay(snapshot, policy, answer):
        hold = holds.get(item.session_id)
        fitting = [
            agent for agent in world.values() if could_run(agent, item) and fits(agent, item)
        ]
        if hold is None:
            assert fitting
        elif hold.attempted:
            assert not fitting


def recovered(device: DeviceState) -> DeviceState:
    return replace(device, free=device.capacity, healthy=True)


def emptied(agent: AgentState) -> AgentState:
    """All capacity is free, but unhealthy devices stay unhealthy."""
    return replace(
        agent,
        free=agent.capacity,
        devices=tuple(replace(d, free=d.capacity) for d in agent.devices),
    )


@WORLD
@given(snapshots(), POLICIES)
def test_reason_of_a_hold_is_true(snapshot: Snapshot, policy: Policy) -> None:
    empty = {
        agent.agent_id: replace(
            agent, free=agent.capacity, devices=tuple(map(recovered, agent.devices))
        )
        for agent in snapshot.agents
    }
    pending = {item.session_id: item for item in snapshot.pending}
    for hold in plan(snapshot, policy).holds:
        if not hold.attempted:
            continue

        item = pending[hold.session_id]
        like = [
            a for a in empty.values() if item.runtime in a.runtimes and item.engine in a.engines
        ]
        roomy = [agent for agent in like if fits(agent, item)]
        usable = [agent for agent in snapshot.agents if could_run(agent, item)]
        if any(fits(emptied(agent), item) for agent in usable):
            expected = Reason.INSUFFICIENT_RESOURCES
        else:
            expected = Reason.INFEASIBLE if like and not roomy else Reason.NO_ELIGIBLE_AGENT

        assert hold.reason is expected
        assert hold.capacity == (expected is Reason.INSUFFICIENT_RESOURCES)
        assert sum(refusal.agents for refusal in hold.refusals) == len(snapshot.agents)
        for refusal in hold.refusals:
            if refusal.kind in (RefusalKind.CAPACITY, RefusalKind.UNHEALTHY, RefusalKind.NEVER):
                assert 0 <= refusal.available < refusal.requested


@WORLD
@given(snapshots(), POLICIES)
def test_only_a_blocked_head_ends_the_pass(snapshot: Snapshot, policy: Policy) -> None:
    answer = plan(snapshot, policy)
    tried = sort_pending(snapshot.pending, policy)
    blocked = {hold.session_id for hold in answer.holds if hold.capacity}
    untried = {hold.session_id for hold in answer.holds if not hold.attempted}
    first = next((i for i, item in enumerate(tried) if item.session_id in blocked), len(tried))
    if policy.head_blocks:
        assert untried == {item.session_id for item in tried[first + 1 :]}
        assert len(blocked) <= 1
    else:
        assert not untried

    places = {place.session_id for place in answer.places}
    if policy.hol == "strict":
        overtaken = [(a, b) for a, b in combinations(tried, 2) if a.session_id in blocked]
        assert not [b for a, b in overtaken if a.priority == b.priority and b.session_id in places]


@WORLD
@given(snapshots(), POLICIES)
def test_concentrated_leaves_least_free_and_dispersed_most(
    snapshot: Snapshot, policy: Policy
) -> None:
    """On agents without devices, the ranking is by cpu and then memory, with requested slots
    first."""
    answer = plan(
        replace(snapshot, agents=tuple(replace(a, devices=()) for a in snapshot.agents)), policy
    )
    bare = replace(snapshot, agents=tuple(replace(a, devices=()) for a in snapshot.agents))
    places = {place.session_id: place for place in answer.places}
    for item, world in replay(bare, policy, answer):
        if not (place := places.get(item.session_id)):
            continue

        sign = 1 if policy.agent_selection == "concentrated" else -1
        fitting = [
            agent for agent in world.values() if could_run(agent, item) and fits(agent, item)
        ]
        slots = sorted(("cpu", "mem"), key=lambda slot: not item.slots.get(slot))
        best = min(
            fitting, key=lambda a: (*(sign * max(0, a.free[slot]) for slot in slots), a.agent_id)
        )
        assert place.agent_id == best.agent_id
