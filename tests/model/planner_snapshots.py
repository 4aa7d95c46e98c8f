"""Generated snapshots and policies, and a reference check of what fits that shares no code with the
planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Plan, Policy, Snapshot
from moorage.manager.scheduling.core.model import (
    Allocation,
    KernelRequest,
    Quota,
    QuotaScope,
    Running,
)
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.core.results import KernelPlace
from moorage.manager.scheduling.core.shape import user_of_qos

PLANS = examples(100)
NOW = 1_000
USERS = ("ann", "bob", "eve")
# What a quota limits: a user in all resource groups, a user in the one that is planned, a QoS, and a
# user of a QoS.
SUBJECTS: st.SearchStrategy[tuple[QuotaScope, str]] = st.one_of(
    st.sampled_from([(scope, user) for scope in ("user", "group-user") for user in USERS]),
    st.sampled_from(
        [("qos", "debug"), *(("qos-user", user_of_qos("debug", user)) for user in USERS)]
    ),
)
QOS = st.sampled_from(["", "debug"])
Amounts = dict[tuple[str, str], int]  # by slot and device ("" for cpu and mem)

SLOTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 5).map(lambda cpus: cpus * 1000),
        "mem": st.integers(0, 500),
        "cuda.device": st.integers(0, 2),
        "cuda.shares": st.sampled_from([0, 100, 250, 500, 600, 1000, 1500]),
    },
)

# Node-seconds: most sessions are not site jobs.
JOBS = st.sampled_from([0, 0, 0, 1, 2, 5])


@st.composite
def agents(draw: st.DrawFn, name: str) -> AgentState:
    cpu = draw(st.integers(1, 8)) * 1000
    mem = draw(st.integers(1, 8)) * 100
    gpus = [DeviceId(f"g{i}") for i in range(draw(st.integers(0, 3)))]
    left: Amounts = {("cpu", ""): cpu, ("mem", ""): mem} | {
        ("cuda.device", gpu): 1000 for gpu in gpus
    }
    running = []
    for number in range(draw(st.integers(0, 4))):
        allocations = []
        for slot, device_id in sorted(left):
            some = (
                draw(st.integers(0, left[slot, device_id]))
                if not device_id
                else draw(st.sampled_from([0, 0, 100, 500, 1000]))
            )
            if 0 < some <= left[slot, device_id]:
                left[slot, device_id] -= some
                allocations.append(Allocation(slot, DeviceId(device_id), some))

        running.append(
            Running(
                SessionId(f"r-{name}-{number}"),
                KernelId(f"rk-{name}-{number}"),
                allocations=tuple(allocations),
                ends_at=draw(st.none() | st.integers(NOW - 5, NOW + 50)),
                started_at=draw(st.integers(0, NOW)),
                priority=draw(st.sampled_from([5, 10, 50])),
                user=draw(st.sampled_from(USERS)),
                endpoint_id=draw(st.sampled_from([None, EndpointId("e")])),
                preemptible=draw(st.booleans()),
                terminating=draw(st.integers(0, 5)) == 0,
            )
        )

    return AgentState(
        AgentId(name),
        frozenset({"process"}),
        engines=frozenset({"custom"}),
        free={"cpu": left["cpu", ""], "mem": left["mem", ""]},
        capacity={"cpu": cpu, "mem": mem},
        devices=tuple(
            DeviceState(
                gpu, "cuda.device", left["cuda.device", gpu], healthy=draw(st.integers(0, 7)) > 0
            )
            for gpu in gpus
        ),
        available=draw(st.integers(0, 7)) > 0,
        draining=draw(st.integers(0, 9)) == 0,
        dials_out=draw(st.integers(0, 4)) == 0,
        arch=draw(st.sampled_from(["x86_64", "x86_64", "aarch64"])),
        max_kernels=draw(st.sampled_from([None, None, 1, 5])),
        kernels=len(running),
        running=tuple(running),
    )


@st.composite
def pending_session(draw: st.DrawFn, name: str, names: list[str]) -> Pending:
    others = draw(st.sampled_from([0, 0, 0, 1, 2]))
    return Pending(
        SessionId(name),
        KernelId(f"k-{name}"),
        revision=draw(st.integers(1, 9)),
        priority=draw(st.sampled_from([10, 10, 10, 50])),
        created=draw(st.integers(0, 5)),
        retries=draw(st.integers(0, 3)),
        runtime="process",
        engine="custom",
        slots=draw(SLOTS),
        avoid=frozenset(
            map(AgentId, draw(st.sets(st.sampled_from(names), max_size=1)) if names else ())
        ),
        user=draw(st.sampled_from(USERS)),
        project=draw(st.sampled_from(["p", "q"])),
        qos=draw(QOS),
        sub_kernels=tuple(
            KernelRequest(KernelId(f"k-{name}-{n}"), draw(SLOTS)) for n in range(others)
        ),
        mode=draw(st.sampled_from(["single-node", "multi-node"])),
        arch=draw(st.sampled_from(["", "", "x86_64"])),
        time_limit=draw(st.none() | st.integers(1, 60)),
        endpoint_id=draw(st.sampled_from([None, None, EndpointId("e")])),
        starts_at=draw(st.sampled_from([None, None, None, NOW, NOW + 1])),
        dependencies=draw(st.sampled_from(["met", "met", "met", "unmet"])),
        bypassed=draw(st.integers(0, 4)),
        waiting_since=draw(st.integers(1, NOW)),
        node_seconds=draw(JOBS),
    )


REQUESTS: tuple[dict[str, int], ...] = (
    {"cuda.device": 1},
    {"cuda.device": 2},
    {"cuda.device": 3},
    {"cuda.device": 4},
    {"cuda.shares": 500},
    {"cuda.shares": 1500},
    {"cuda.device": 1, "cpu": 2000},
    {"cpu": 3000},
)


@st.composite
def busy_agents(draw: st.DrawFn, name: str) -> AgentState:
    """Four GPUs, most of them in use by work that mostly has a known end time."""
    running = []
    devices = []
    for number in range(4):
        gpu = DeviceId(f"g{number}")
        taken = draw(st.sampled_from([0, 500, 1000, 1000]))
        devices.append(DeviceState(gpu, "cuda.device", 1000 - taken))

        if taken:
            running.append(
                Running(
                    SessionId(f"r-{name}-{number}"),
                    KernelId(f"rk-{name}-{number}"),
                    allocations=(Allocation("cuda.device", gpu, taken),),
                    ends_at=draw(st.sampled_from([None, NOW + 5, NOW + 10, NOW + 20])),
                    started_at=draw(st.integers(0, NOW)),
                    priority=draw(st.sampled_from([5, 5, 10])),
                    user=draw(st.sampled_from(USERS)),
                    preemptible=draw(st.integers(0, 3)) > 0,
                )
            )

    serves = frozenset({"process"}), frozenset({"custom"})
    free = {"cpu": draw(st.integers(2, 8)) * 1000}
    return AgentState(
        AgentId(name), *serves, free, {"cpu": 8000}, tuple(devices), running=tuple(running)
    )


@st.composite
def busy_snapshots(draw: st.DrawFn, most: int = 3, clusters: bool = True) -> Snapshot:
    """One to ``most`` agents with little free capacity, and many sessions that need it."""
    states = tuple(draw(busy_agents(f"a{number}")) for number in range(draw(st.integers(1, most))))
    pending = tuple(
        Pending(
            SessionId(f"s{number}"),
            KernelId(f"k{number}"),
            revision=1,
            priority=draw(st.sampled_from([10, 10, 10, 50])),
            created=number,
            retries=draw(st.integers(0, 2)),
            runtime="process",
            engine="custom",
            slots=draw(st.sampled_from(REQUESTS)),
            user=draw(st.sampled_from(USERS)),
            qos=draw(QOS),
            sub_kernels=tuple(
                KernelRequest(KernelId(f"k{number}-{n}"), draw(st.sampled_from(REQUESTS)))
                for n in range(draw(st.sampled_from([0, 0, 0, 1, 2])))
            ),
            mode=draw(st.sampled_from(["single-node", "multi-node"])),
            time_limit=draw(st.sampled_from([None, 3, 8, 10, 15, 40])),
            node_seconds=draw(JOBS),
        )
        for number in range(draw(st.integers(3, 9)))
    )
    limits = {"cpu": draw(st.integers(0, 9000)), "cuda.device": draw(st.integers(1, 6))}
    quota = Quota(
        *draw(SUBJECTS),
        limits=limits,
        used={},
        sessions=draw(st.integers(1, 5)),
        node_seconds=draw(st.sampled_from([None, 0, 3, 9])),
    )

    return Snapshot("g", states, pending, (quota,) if draw(st.booleans()) else ())


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    return Quota(
        *draw(SUBJECTS),
        draw(
            st.fixed_dictionaries(
                {}, optional={"cpu": st.integers(0, 9000), "cuda.device": st.integers(0, 3)}
            )
        ),
        draw(
            st.fixed_dictionaries(
                {}, optional={"cpu": st.integers(0, 5000), "cuda.shares": st.integers(0, 900)}
            )
        ),
        draw(st.none() | st.integers(0, 3)),
        draw(st.integers(0, 2)),
        node_seconds=draw(st.none() | st.integers(0, 9)),
        node_seconds_used=draw(st.integers(0, 5)),
    )


QUOTAS = st.lists(quotas(), max_size=2, unique_by=lambda quota: (quota.scope, quota.name))


@st.composite
def snapshots(draw: st.DrawFn, most: int = 10) -> Snapshot:
    names = [f"a{i}" for i in range(draw(st.integers(0, 4)))]
    pending = [draw(pending_session(f"s{i}", names)) for i in range(draw(st.integers(0, most)))]
    cursors = {"": AgentId("a1")} if draw(st.booleans()) else {}
    states = tuple(draw(agents(name)) for name in names)
    return Snapshot(
        "g", states, pending=tuple(pending), quotas=tuple(draw(QUOTAS)), cursors=cursors
    )


@st.composite
def head_with_backfill(draw: st.DrawFn) -> Snapshot:
    """A queue head that waits for work with a known end time, and many sessions that fit into the
    capacity that is free until then."""
    free = draw(st.integers(1, 3))
    agent = draw(busy_agents("a"))
    ends = draw(st.sampled_from([NOW + 5, NOW + 10]))
    names = [DeviceId(f"g{number}") for number in range(4)]
    running = tuple(
        Running(
            SessionId(f"r{name}"),
            KernelId(f"r{name}"),
            (Allocation("cuda.device", name, 1000),),
            ends,
        )
        for name in names[free:]
    )
    devices = tuple(
        DeviceState(name, "cuda.device", 1000 * (number < free))
        for number, name in enumerate(names)
    )
    sizes = [draw(st.integers(free + 1, 4)), *draw(st.lists(st.just(1), min_size=2, max_size=4))]
    pending = tuple(
        Pending(
            SessionId(f"s{number}"), KernelId(f"k{number}"), 1, 10, number, 0, "process", "custom",
            {"cuda.device": size}, time_limit=draw(st.sampled_from([None, 3, 8, 12, 40])),
        )
        for number, size in enumerate(sizes)
    )  # fmt: skip

    return Snapshot("g", (replace(agent, devices=devices, running=running),), pending)


@st.composite
def small_quota(draw: st.DrawFn) -> Snapshot:
    """Much free capacity, and a small quota."""
    world = draw(busy_snapshots(1))
    (agent,) = world.agents
    devices = tuple(DeviceState(DeviceId(f"g{n}"), "cuda.device", 1000) for n in range(16))
    roomy = replace(
        agent, free={"cpu": 64_000}, capacity={"cpu": 64_000}, devices=devices, running=()
    )
    scope, name, qos = draw(
        st.sampled_from(
            [("user", "ann", ""), ("qos", "debug", "debug"), ("qos-user", "debug:ann", "debug")]
        )
    )
    mine = tuple(replace(item, user="ann", qos=qos, mode="single-node") for item in world.pending)
    if draw(st.booleans()):  # of node-hours alone
        jobs = tuple(replace(item, node_seconds=draw(st.integers(1, 5))) for item in mine)
        hours = {
            "node_seconds": draw(st.integers(1, 9)),
            "node_seconds_used": draw(st.integers(0, 2)),
        }
        return Snapshot("g", (roomy,), jobs, (Quota(scope, name, {}, {}, None, 0, **hours),))

    limits = {"cpu": draw(st.integers(0, 9000)), "cuda.device": draw(st.integers(1, 6))}
    quota = Quota(
        scope,
        name,
        limits=limits,
        used={"cuda.shares": 300},
        sessions=draw(st.none() | st.integers(1, 5)),
        running=0,
    )
    return Snapshot("g", (roomy,), mine, (quota,))


def any_snapshot() -> st.SearchStrategy[Snapshot]:
    return st.one_of(snapshots(), busy_snapshots())


@st.composite
def policies(draw: st.DrawFn, **fixed: Any) -> Policy:
    options: dict[str, Any] = {
        "hol": draw(st.sampled_from(["strict", "skip", "backfill", "backfill"])),
        "num_retries_to_skip": draw(st.integers(0, 2)),
        "agent_selection": draw(st.sampled_from(["concentrated", "dispersed", "round-robin"])),
        "strategy": draw(st.sampled_from(["fifo", "fifo", "lifo", "drf"])),
        "max_bypasses": draw(st.none() | st.integers(0, 3)),
        "max_skip_age": draw(st.none() | st.integers(0, NOW)),
        "replicas": draw(st.sampled_from(["spread", "pack", "none"])),
        "fraction": draw(st.sampled_from(["even", "fill"])),
        "weights": draw(st.dictionaries(st.sampled_from(USERS), st.integers(1, 3))),
        "preemption": draw(st.none() | st.builds(Preemption, grace=st.just(20))),
    }
    return Policy(**(options | fixed))


def free_amounts(agent: AgentState) -> Amounts:
    """The capacity that can be allocated, by slot and device."""
    scalars: Amounts = {(slot, ""): amount for slot, amount in agent.free.items()}
    return scalars | {(d.slot, str(d.device_id)): d.free if d.healthy else 0 for d in agent.devices}


def add(free: Amounts, allocations: tuple[Allocation, ...], sign: int) -> Amounts:
    changed = dict(free)
    for allocation in allocations:
        changed[allocation.slot, allocation.device_id] = (
            changed.get((allocation.slot, allocation.device_id), 0) + sign * allocation.amount
        )
    return changed


def fit(free: Amounts, kernels: list[Mapping[str, int]]) -> bool:
    """Whether all of ``kernels`` fit at the same time, found by trying every choice of whole
    devices and one fraction for each."""
    if not kernels:
        return True

    slots, *rest = kernels
    for slot in ("cpu", "mem"):
        if slots.get(slot, 0) > free.get((slot, ""), 0):
            return False

    left = {
        key: amount - (slots.get(key[0], 0) if not key[1] else 0) for key, amount in free.items()
    }
    shares = slots.get("cuda.shares", 0)
    whole = slots.get("cuda.device", 0) + shares // 1000
    part = shares % 1000
    gpus = [key for key in left if key[0] == "cuda.device"]
    for chosen in combinations([key for key in gpus if left[key] >= 1000], whole):
        after = left | dict.fromkeys(chosen, 0)
        if not part:
            if fit(after, rest):
                return True
            continue

        for key in gpus:
            if (
                key not in chosen
                and after[key] >= part
                and fit(after | {key: after[key] - part}, rest)
            ):
                return True

    return False


def when_emptied(agent: AgentState) -> Amounts:
    """The capacity that can be allocated once everything that ends by itself has ended. Services
    keep running, and unhealthy devices stay unhealthy."""
    scalars: Amounts = {(slot, ""): amount for slot, amount in agent.capacity.items()}
    amounts = scalars | {
        (d.slot, str(d.device_id)): d.capacity if d.healthy else 0 for d in agent.devices
    }
    unhealthy = {str(device.device_id) for device in agent.devices if not device.healthy}
    for running in agent.running:
        if running.endless:
            taken = tuple(take for take in running.allocations if take.device_id not in unhealthy)
            amounts = add(amounts, taken, -1)

    return amounts


def can_be_helped(snapshot: Snapshot, item: Pending) -> bool:
    """Whether the session could start if everything that ends by itself had ended, found by trying
    every choice of agents."""
    kernels = [kernel.slots for kernel in item.kernels]
    able = [
        agent
        for agent in snapshot.agents
        if agent.schedulable
        and not (agent.dials_out and item.shape.mode == "multi-node")
        and item.arch in ("", agent.arch)
        and agent.agent_id not in item.avoid
        and (not item.designated or agent.agent_id in item.designated)
    ]
    if len(kernels) == 1 or item.mode == "single-node":
        return any(
            _kernels_left(agent) >= len(kernels) and fit(when_emptied(agent), kernels)
            for agent in able
        )

    return fit_apart([when_emptied(agent) for agent in able if _kernels_left(agent)], kernels)


def fit_apart(able: Sequence[Amounts], kernels: Sequence[Mapping[str, int]]) -> bool:
    """Whether each kernel fits on a separate agent, found by trying every choice of agents."""
    fits = [[fit(free, [slots]) for slots in kernels] for free in able]
    return any(
        all(row[kernel] for kernel, row in enumerate(chosen))
        for chosen in permutations(fits, len(kernels))
    )


def _kernels_left(agent: AgentState) -> int:
    """How many kernels the agent can run once everything that ends by itself has ended."""
    if agent.max_kernels is None:
        return 1_000
    return agent.max_kernels - sum(running.endless for running in agent.running)


def kernel_places(made: Plan) -> list[tuple[SessionId, KernelPlace]]:
    return [(place.session_id, kernel) for place in made.places for kernel in place.kernels]


def shuffled(snapshot: Snapshot, rng: Any) -> Snapshot:
    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    states = tuple(
        replace(agent, devices=mixed(agent.devices), running=mixed(agent.running))
        for agent in snapshot.agents
    )
    return replace(
        snapshot,
        agents=mixed(states),
        pending=mixed(snapshot.pending),
        quotas=mixed(snapshot.quotas),
    )
