"""Jobs on agents in virtual time: something arrives or ends, and the planner is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Place, Policy, Snapshot, plan
from moorage.manager.scheduling.core.model import KernelRequest, Running
from moorage.simulator.scheduler.traces import Job

# What can be tried by name. All else in them is as in a new resource group.
POLICIES: Mapping[str, Policy] = {
    "strict": Policy(hol="strict"),
    "skip": Policy(hol="skip"),
    "greedy": Policy(hol="skip", max_bypasses=None, max_skip_age=None),
    "backfill": Policy(hol="backfill"),
    "lifo": Policy(strategy="lifo"),
    "drf": Policy(strategy="drf"),
}
_GPU = "cuda.device"


@dataclass(frozen=True, slots=True)
class Floor:
    """What there is: so many agents with so many GPUs each, and nothing else ever runs short."""

    agents: int
    gpus: int

    @property
    def total(self) -> int:
        return self.agents * self.gpus


@dataclass(frozen=True, slots=True)
class Extent:
    """What there is of any slot, in its own unit: ``total`` of it, and the most that one agent has."""

    total: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """``started`` is None for a job that asked for more than there is."""

    job: Job
    started: int | None


@dataclass(frozen=True, slots=True)
class Played:
    """``outcomes`` in the order of the jobs. ``busy``: from when how many GPUs were in use."""

    floor: Floor | Extent
    outcomes: tuple[Outcome, ...]
    busy: tuple[tuple[int, int], ...]
    passes: int


def play(jobs: Sequence[Job], floor: Floor, policy: Policy) -> Played:
    """Every job from arrival to end. ``jobs`` in the order of their arrival.

    There is one pass at each moment at which something arrives or ends, so retries and bypasses are counted
    by those passes; starting takes no time.
    """
    world = _World(floor, policy)
    started: dict[str, int] = {}
    ends: list[tuple[int, str]] = []
    by_name = {job.name: job for job in jobs}
    next_, passes = 0, 0
    while next_ < len(jobs) or ends:
        now = min([job.at for job in jobs[next_ : next_ + 1]] + [end for end, _ in ends[:1]])
        while ends and ends[0][0] == now:
            world.end(heappop(ends)[1], now)
        while next_ < len(jobs) and jobs[next_].at == now:
            world.arrive(jobs[next_])
            next_ += 1
        if world.pending:
            passes += 1
            for name in world.decide(now):
                started[name] = now
                heappush(ends, (now + by_name[name].runs, name))
    outcomes = tuple(Outcome(job, started.get(job.name)) for job in jobs)
    return Played(floor, outcomes, tuple(world.busy.items()), passes)


class _World:
    def __init__(self, floor: Floor, policy: Policy) -> None:
        self._floor, self._policy = floor, policy
        devices = tuple(DeviceState(DeviceId(f"gpu-{n:03}"), _GPU, 1000) for n in range(floor.gpus))
        one = AgentState(AgentId(""), frozenset({"process"}), frozenset({"custom"}), {}, {}, devices)
        names = [AgentId(f"agent-{n:05}") for n in range(floor.agents)]
        self._agents = {name: replace(one, agent_id=name) for name in names}
        self._cursors: dict[str, AgentId] = {}
        self._on: dict[str, list[AgentId]] = {}  # where what runs is
        self._limits: dict[str, int | None] = {}
        self.pending: dict[str, Pending] = {}
        self.busy: dict[int, int] = {}
        self._used = 0

    def arrive(self, job: Job) -> None:
        first, *others = _kernels(job, self._floor.gpus)
        self.pending[job.name] = Pending(
            SessionId(job.name), first.kernel_id, 1, job.priority, job.at, 0,
            "process", "custom", first.slots, user=job.user, time_limit=job.limit, sub_kernels=tuple(others),
            mode="multi-node",
        )  # fmt: skip

    def end(self, name: str, now: int) -> None:
        for agent_id in self._on.pop(name):
            agent = self._agents[agent_id]
            gone = [running for running in agent.running if running.session_id == name]
            free = {take.device_id for running in gone for take in running.allocations}
            stay = tuple(running for running in agent.running if running.session_id != name)
            self._change(agent, free, 1000, stay)
            self._used -= len(free)
        self.busy[now] = self._used

    def decide(self, now: int) -> list[str]:
        """One pass; the names of those that start."""
        snapshot = Snapshot(
            "rehearsal", tuple(self._agents.values()), tuple(self.pending.values()), cursors=self._cursors
        )
        made = plan(snapshot, self._policy, now)
        self._cursors |= made.cursors
        enough = max(1, self._policy.num_retries_to_skip)
        for hold in made.holds:
            if hold.capacity and (item := self.pending[hold.session_id]).retries < enough:
                self.pending[hold.session_id] = replace(item, retries=item.retries + 1)
        for session_id, bypassed in made.bypasses.items():
            self.pending[session_id] = replace(self.pending[session_id], bypassed=bypassed)
        for place in made.places:
            self._start(place, now)
        if made.places:
            self.busy[now] = self._used
        return [place.session_id for place in made.places]

    def _start(self, place: Place, now: int) -> None:
        item = self.pending.pop(place.session_id)
        ends = None if item.time_limit is None else now + item.time_limit
        self._on[place.session_id] = []
        for kernel in place.kernels:
            agent = self._agents[kernel.agent_id]
            running = Running(
                place.session_id, kernel.kernel_id, kernel.allocations, ends, now, item.priority, item.user
            )
            taken = {take.device_id for take in kernel.allocations}
            self._change(agent, taken, 0, (*agent.running, running))
            self._on[place.session_id].append(kernel.agent_id)
            self._used += len(taken)

    def _change(
        self, agent: AgentState, which: set[DeviceId], free: int, running: tuple[Running, ...]
    ) -> None:
        devices = tuple(replace(d, free=free) if d.device_id in which else d for d in agent.devices)
        self._agents[agent.agent_id] = replace(agent, devices=devices, running=running)


def _kernels(job: Job, gpus: int) -> list[KernelRequest]:
    """One where it fits on an agent, else as many full agents as it takes, and the rest."""
    full, rest = divmod(job.gpus, gpus)
    sizes = [gpus] * full + [rest] * (rest > 0)
    return [KernelRequest(KernelId(f"{job.name}-{n}"), {_GPU: size}) for n, size in enumerate(sizes)]
