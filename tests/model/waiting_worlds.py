"""Worlds in virtual time in which a session waits for capacity among services, distant end times,
unhealthy devices, draining agents, sessions ahead of it and a stream of later ones; and the bound
on its wait, by plain arithmetic.

A tick is one planner microsecond. A world is planned once in each tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

from hypothesis import strategies as st
from planner_snapshots import Amounts, add, can_be_helped, fit, fit_apart, free_amounts

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
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

LONGEST = 4
FAR = 60
# Ticks for the same runs. Few of many agents become free in the same tick.
FINE = 5
_PROCESS = frozenset({"process"}), frozenset({"custom"})


@dataclass(frozen=True)
class Work:
    """A session's behavior once it has started. ``runs``: ticks, or None for a service. ``limit``:
    its time limit, which is never exceeded, or None if it has none."""

    gpus: int
    runs: int | None
    limit: int | None = None
    priority: int = 10
    user: str = "ann"
    kernels: int = 1
    others: int | None = None  # GPUs of each of the other kernels; None means as many
    mode: str = "multi-node"
    designated: frozenset[AgentId] = frozenset()


@dataclass(frozen=True)
class Machine:
    """``load``: the work that already uses the first GPUs, one GPU each."""

    gpus: int
    load: tuple[Work, ...] = ()
    unhealthy: int = 0  # the last GPUs
    draining: bool = False


@dataclass
class World:
    machines: Sequence[Machine]
    policy: Policy
    now: int = 0
    longest: int = LONGEST  # the longest run of work that does not stay
    pending: dict[SessionId, Pending] = field(default_factory=dict)
    works: dict[SessionId, Work] = field(default_factory=dict)
    # with the true end
    live: list[tuple[AgentId, Running, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = count()
        for number, machine in enumerate(self.machines):
            for gpu, work in enumerate(machine.load):
                taken = (Allocation("cuda.device", DeviceId(f"g{gpu}"), 1000),)
                self._start(AgentId(f"a{number}"), SessionId(f"r-{number}-{gpu}"), work, taken)

    def submit(self, work: Work, name: str = "") -> SessionId:
        session_id = SessionId(name or f"s{next(self._numbers):04}")
        slots = {"cuda.device": work.gpus}
        other_slots = slots if work.others is None else {"cuda.device": work.others}
        others = [KernelId(f"{session_id}-{number}") for number in range(1, work.kernels)]
        self.pending[session_id] = Pending(
            session_id,
            KernelId(session_id),
            1,
            work.priority,
            self.now + 1,
            0,
            *("process", "custom"),
            slots=slots,
            user=work.user,
            sub_kernels=tuple(KernelRequest(kernel_id, other_slots) for kernel_id in others),
            mode=work.mode,  # type: ignore[arg-type]
            designated=work.designated,
            time_limit=work.limit,
            endpoint_id=EndpointId("e") if work.runs is None else None,
        )
        self.works[session_id] = work

        return session_id

    def _start(
        self,
        agent_id: AgentId,
        session_id: SessionId,
        work: Work,
        taken: tuple[Allocation, ...],
        *,
        kernel: str = "",
    ) -> None:
        ends = None if work.limit is None else self.now + work.limit
        endpoint_id = EndpointId("e") if work.runs is None else None
        running = Running(
            session_id, KernelId(kernel or session_id), taken, ends, self.now, work.priority, work.user,
            endpoint_id=endpoint_id,
        )  # fmt: skip
        self.live.append((agent_id, running, None if work.runs is None else self.now + work.runs))

    def snapshot(self) -> Snapshot:
        agents = []
        for number, machine in enumerate(self.machines):
            name = AgentId(f"a{number}")
            mine = tuple(running for agent_id, running, _ in self.live if agent_id == name)
            used = {take.device_id for running in mine for take in running.allocations}
            devices = tuple(
                DeviceState(
                    DeviceId(f"g{gpu}"), "cuda.device", 0 if f"g{gpu}" in used else 1000,
                    healthy=gpu < machine.gpus - machine.unhealthy,
                )
                for gpu in range(machine.gpus)
            )  # fmt: skip
            agents.append(
                AgentState(
                    name, *_PROCESS, {}, {}, devices, draining=machine.draining, running=mine
                )
            )

        return Snapshot("g", tuple(agents), tuple(self.pending.values()))

    def tick(self, arrivals: Sequence[Work]) -> Plan:
        """End the sessions whose time is up, let new ones arrive, and plan."""
        self.now += 1
        self.live = [one for one in self.live if one[2] is None or one[2] > self.now]
        for work in arrivals:
            self.submit(work)

        made = plan(self.snapshot(), self.policy, self.now)
        for hold in made.holds:
            if hold.capacity:
                item = self.pending[hold.session_id]
                self.pending[hold.session_id] = replace(item, retries=item.retries + 1)

        for session_id, bypassed in made.bypasses.items():
            self.pending[session_id] = replace(self.pending[session_id], bypassed=bypassed)

        for place in made.places:
            del self.pending[place.session_id]
            work = self.works[place.session_id]
            for kernel in place.kernels:
                self._start(
                    kernel.agent_id,
                    place.session_id,
                    work,
                    kernel.allocations,
                    kernel=kernel.kernel_id,
                )

        return made


def longest_wait(world: World, name: SessionId) -> int | None:
    """The latest time at which the overdue session ``name`` starts, as ``docs/scheduling.md``
    states it. None means that nothing bounds its wait now."""
    snapshot = world.snapshot()
    item = world.pending[name]
    policy = world.policy
    if not can_be_helped(snapshot, item):
        return None

    agents = _agents(snapshot, item)
    ahead = sum(
        other.session_id != name
        and other.queued_since <= item.queued_since
        and can_be_helped(snapshot, other)
        and (policy.head_blocks or bool(agents & _agents(snapshot, other)))
        for other in world.pending.values()
    )
    longest = world.longest
    limits = [
        running.ends_at - world.now for _, running, _ in world.live if running.ends_at is not None
    ]
    staying = {
        name for name, running, end in world.live if running.ends_at is None and stays(world, end)
    }

    # The symbols of the formula.
    m = (
        0
        if not ahead and _fits_without_unlimited(snapshot, item)
        else max([longest * bool(ahead), *limits])
    )
    u = longest
    n = len(staying)
    patience = policy.max_skip_age or 0

    # Further agents are held by age, even for a session that is overdue because others have
    # overtaken it.
    early = max(0, item.queued_since + patience - world.now) if n else 0
    w = m + u + n * patience + early
    if not ahead and (known := _known_start(snapshot, item, world.now)) is not None:
        w = min(known - world.now, w)

    return world.now + (1 + ahead) * w


def stays(world: World, end: int | None) -> bool:
    """Whether any work without a time limit turns out never to end, which the planner cannot
    know."""
    return end is not None and end - world.now > world.longest


def _known_start(snapshot: Snapshot, item: Pending, now: int) -> int | None:
    times = {now} | {
        r.ends_at for agent in snapshot.agents for r in agent.running if r.ends_at is not None
    }
    for time in sorted(times):
        if _fits_once(
            snapshot,
            item,
            {r.kernel_id for a in snapshot.agents for r in a.running if _ended(r, time)},
        ):
            return max(time, now)

    return None


def _ended(running: Running, time: int) -> bool:
    return running.ends_at is not None and running.ends_at <= time


def _fits_without_unlimited(snapshot: Snapshot, item: Pending) -> bool:
    """Whether the session could start if all work without a time limit, except services, had
    ended."""
    gone = {
        r.kernel_id
        for a in snapshot.agents
        for r in a.running
        if r.ends_at is None and not r.endless
    }
    return _fits_once(snapshot, item, gone)


def _fits_once(snapshot: Snapshot, item: Pending, gone: set[KernelId]) -> bool:
    kernels = [kernel.slots for kernel in item.kernels]
    able: list[Amounts] = []
    for agent in snapshot.agents:
        if agent.schedulable and (not item.designated or agent.agent_id in item.designated):
            free = free_amounts(agent)
            unhealthy = {str(device.device_id) for device in agent.devices if not device.healthy}
            for running in agent.running:
                if running.kernel_id in gone:
                    free = add(
                        free,
                        tuple(t for t in running.allocations if t.device_id not in unhealthy),
                        1,
                    )

            able.append(free)

    if item.mode == "single-node" or len(kernels) == 1:
        return any(fit(free, kernels) for free in able)

    return fit_apart(able, kernels)


def _agents(snapshot: Snapshot, item: Pending) -> set[AgentId]:
    """The agents that it may use."""
    return {
        a.agent_id
        for a in snapshot.agents
        if a.schedulable and a.agent_id in (item.designated or {a.agent_id})
    }


def overdue(world: World, name: SessionId) -> bool:
    item = world.pending[name]
    policy = world.policy
    if policy.max_bypasses is not None and item.bypassed >= policy.max_bypasses:
        return True
    return policy.max_skip_age is not None and world.now - item.created >= policy.max_skip_age


Limits = Literal["known", "unknown", "mixed"]


@st.composite
def short_work(
    draw: st.DrawFn,
    limits: Limits,
    gpus: int = 1,
    priorities: Sequence[int] = (10,),
    *,
    longest: int = LONGEST,
) -> Work:
    runs = draw(st.integers(1, longest))
    known = st.sampled_from([runs, longest])
    limit = draw({"known": known, "unknown": st.none(), "mixed": st.none() | known}[limits])
    return Work(
        gpus,
        runs,
        limit=limit,
        priority=draw(st.sampled_from(priorities)),
        user=draw(st.sampled_from(["ann", "bob"])),
    )


def service(priority: int = 10) -> Work:
    return Work(1, None, limit=None, priority=priority, user="bob")


@st.composite
def machines(draw: st.DrawFn, limits: Limits, far: bool) -> Machine:
    """Agents that are full, and in rare cases unhealthy or draining."""
    gpus = draw(st.integers(2, 3))
    loads = [short_work(limits), short_work(limits), short_work(limits), st.just(service())]
    loads += [st.just(Work(1, FAR, FAR))] * (2 * far)
    load = draw(st.lists(st.one_of(loads), min_size=gpus, max_size=gpus))
    return Machine(
        gpus, tuple(load), draw(st.sampled_from([0, 0, 0, 1])), draw(st.integers(0, 7)) == 7
    )


@st.composite
def busy_fleets(draw: st.DrawFn, limits: Limits, longest: int) -> list[Machine]:
    """Many machines full of small work, a few of them with a service."""
    fleet = []
    for _ in range(draw(st.integers(4, 12))):
        load = [draw(short_work(limits, longest=longest)) for _ in range(draw(st.integers(2, 4)))]
        if draw(st.integers(0, 7)) == 7:
            load[-1] = service()
        fleet.append(Machine(len(load), tuple(load)))
    return fleet


@st.composite
def arrivals(draw: st.DrawFn, limits: Limits) -> list[Work]:
    """The arrivals in a tick: small work, and now and then a large, long, important or endless
    session."""
    rare = [
        short_work(limits, 2),
        short_work(limits, 3, (10, 90)),
        short_work(limits, 1, (90,)),
        st.just(service()),
        st.just(service(90)),
        st.just(Work(1, FAR, FAR)),
        st.just(Work(2, FAR, FAR, 90)),
    ]
    small = st.lists(short_work(limits), min_size=2, max_size=5)
    return draw(small) + draw(st.lists(st.one_of(rare), max_size=1))


@st.composite
def large_work(draw: st.DrawFn, limits: Limits, fleet: Sequence[Machine]) -> Work:
    """Work of a size that fits on most of these machines once they are empty, or that names one of
    them."""
    capacity = [
        m.gpus - m.unhealthy - sum(w.runs is None for w in m.load) for m in fleet if not m.draining
    ]
    most = max([1, *capacity])
    work = draw(short_work(limits, draw(st.integers(max(1, most - 1), most)), (0, 10, 10)))
    clusters = [(1, "multi-node")] * 3 + [(2, "single-node"), (len(capacity), "multi-node")]
    kernels, mode = draw(st.sampled_from(clusters))
    if kernels > 1:
        gpus = max(1, work.gpus // 2) if mode == "single-node" else max(1, min(capacity))
        work = replace(work, kernels=kernels, mode=mode, gpus=gpus)

    named = draw(st.sampled_from([None, None, None, *range(len(fleet))]))
    return work if named is None else replace(work, designated=frozenset({AgentId(f"a{named}")}))
