"""Trace for the scheduler simulator: arriving sessions, and resources, policies and quotas over
time.

Times are in microseconds: Unix time in a recording, time since the start in a synthetic trace.
Durations are also in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.runtimes import DEFAULT_RUNTIME
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy
from moorage.manager.scheduling.core.demand import SHARES_SUFFIX
from moorage.manager.scheduling.core.model import KernelRequest, Quota, Running
from moorage.simulator.scheduler.jobs import TraceJob

_GPU = "cuda.device"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A session that waits from ``at`` on. ``runs``: the time for which it holds its allocation
    unless it is preempted; None if it still held the allocation when the recording ended, or if it
    never started. ``started``: its first start in the recording. ``attempts``: start and end of
    each recorded run, if it was preempted there."""

    item: Pending
    at: int
    runs: int | None
    started: int | None
    preemptible: bool = True
    attempts: tuple[tuple[int, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class FixedKernel:
    """A kernel that starts at ``begin`` on its recorded agent under every policy: it started before
    the recording did, or in a pass that was not recorded. It runs until ``end`` (None means beyond
    the recording) unless it is preempted. ``preempted_at``: when it was preempted in the
    recording."""

    agent_id: AgentId
    running: Running
    begin: int
    end: int | None
    preempted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Requeue:
    """The session that fixed kernels belong to: its pending request after a preemption, and its run
    time from then on. ``attempts``: start and end of each run that followed in the recording."""

    item: Pending
    runs: int | None
    attempts: tuple[tuple[int, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace. With ``end`` None, it lasts until everything has ended. ``agents``: an agent's state
    without load, valid from the given time on; ``policies`` and ``quotas`` likewise. ``requeues``:
    those of the sessions with fixed kernels. ``cancelled``: recorded sessions that left the queue
    without starting; they are not simulated. ``slot``: the slot that statistics measure."""

    group: str
    begin: int
    end: int | None
    arrivals: tuple[Arrival, ...]
    agents: tuple[tuple[int, AgentState], ...]
    fixed: tuple[FixedKernel, ...] = ()
    requeues: Mapping[SessionId, Requeue] = field(default_factory=dict)
    policies: tuple[tuple[int, Policy], ...] = ((0, Policy()),)
    quotas: tuple[tuple[int, tuple[Quota, ...]], ...] = ()
    cursors: Mapping[str, AgentId] = field(default_factory=dict)
    cancelled: int = 0
    slot: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", _most_requested(self.arrivals))

    @property
    def latest_policy(self) -> Policy:
        return self.policies[-1][1]

    @property
    def unrecorded_starts(self) -> int:
        """Kernels that started within the recording, but in a pass that was not recorded."""
        return sum(kernel.running.started_at > self.begin for kernel in self.fixed)

    @property
    def unknown_run_times(self) -> int:
        """Sessions whose run time is unknown."""
        return sum(arrival.runs is None for arrival in self.arrivals)


def _most_requested(arrivals: Iterable[Arrival]) -> str:
    """The slot of the device family with the largest total request, in the form used in requests;
    cpu if there is none."""
    totals: dict[str, int] = {}
    for arrival in arrivals:
        for slot, amount in arrival.item.shape.amounts.items():
            if slot.endswith(SHARES_SUFFIX):
                totals[slot] = totals.get(slot, 0) + amount
    return max(sorted(totals), key=lambda slot: totals[slot]) if totals else "cpu"


def without_load(agent: AgentState) -> AgentState:
    """The agent with all its capacity free."""
    devices = tuple(replace(device, free=device.capacity) for device in agent.devices)
    return replace(agent, free=dict(agent.capacity), devices=devices, running=(), kernels=0)


@dataclass(frozen=True, slots=True)
class Fleet:
    """``agents`` agents with ``gpus`` GPUs each; no other resource limits them."""

    agents: int
    gpus: int

    @property
    def total_gpus(self) -> int:
        return self.agents * self.gpus


def trace_of_jobs(jobs: Sequence[TraceJob], fleet: Fleet) -> Trace:
    """A trace of jobs on an empty fleet, from the first arrival until everything has ended."""
    devices = tuple(DeviceState(DeviceId(f"gpu-{n:03}"), _GPU, 1000) for n in range(fleet.gpus))
    supported = frozenset({DEFAULT_RUNTIME}), frozenset({"custom"})
    agents = [
        AgentState(AgentId(f"agent-{n:05}"), *supported, {}, {}, devices)
        for n in range(fleet.agents)
    ]
    begin = min((job.at for job in jobs), default=0)

    return Trace(
        group="simulation",
        begin=begin,
        end=None,
        arrivals=tuple(Arrival(_pending(job, fleet.gpus), job.at, job.runs, None) for job in jobs),
        agents=tuple((begin, agent) for agent in agents),
    )


def _pending(job: TraceJob, gpus: int) -> Pending:
    """The request of a job: one kernel if the job fits on an agent; otherwise kernels that fill
    whole agents, and one for the rest."""
    full, rest = divmod(job.gpus, gpus)
    sizes = [gpus] * full + [rest] * (rest > 0)
    first, *others = (
        KernelRequest(KernelId(f"{job.name}-{n}"), {_GPU: size}) for n, size in enumerate(sizes)
    )

    return Pending(
        SessionId(job.name),
        first.kernel_id,
        revision=1,
        priority=job.priority,
        created=job.at,
        retries=0,
        runtime=DEFAULT_RUNTIME,
        engine="custom",
        slots=first.slots,
        user=job.user,
        time_limit=job.limit,
        sub_kernels=tuple(others),
        mode="multi-node",
    )
