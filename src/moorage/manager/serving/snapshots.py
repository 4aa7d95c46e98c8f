"""Snapshots of endpoints, their replicas and their load, from which decisions are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.serving import Autoscale
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import StartTimes
from moorage.manager.identity.keys import NOBODY, Owner


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests in one engine, as the engine counts them. ``kv_cache``: usage from 0 to 1; None if
    not reported."""

    running: int = 0
    waiting: int = 0
    kv_cache: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """``agent_silent``: the agent is SUSPECT or LOST, so a replacement starts before this replica
    is given up. ``agent_drained``: the agent is being drained, so this replica is stopped once its
    replacement is ready. ``unhealthy_since``: its engine does not answer health checks; it gets no
    requests. ``kept_until``: it is unreachable, and is not replaced for that reason before this
    time. ``failing_since``: according to the proxies, it fails all requests. They prefer other
    replicas, and use it only if there is no other.

    ``draining_since``: it gets no new requests, and stops once it has finished its last one, for
    ``drain_reason``. ``in_flight``: requests that the proxies have sent there; None if no proxy
    reports. ``is_confirmed``: all these proxies know that it is draining. ``load``: None if its
    engine does not report it. ``ends_at``: end of its lifetime, while it runs. ``group``: its
    resource group. ``held``: while it is PENDING, why the scheduler has not placed it.

    For a site job: ``walltime_s``: its requested walltime; ``expected_start``: the site's estimate
    while it is QUEUED; ``successor_at``: the share of the walltime after which its successor starts
    at the latest.
    """

    session_id: SessionId
    status: Status
    created_at: datetime
    status_since: datetime
    ready_at: datetime | None = None
    reason: Reason = Reason.NONE
    agent_silent: bool = False
    agent_drained: bool = False
    revision: int = 1
    unhealthy_since: datetime | None = None
    kept_until: datetime | None = None
    failing_since: datetime | None = None
    draining_since: datetime | None = None
    drain_reason: Reason = Reason.NONE
    in_flight: int | None = None
    is_confirmed: bool = False
    load: EngineLoad | None = None
    ends_at: datetime | None = None
    group: str = "default"
    walltime_s: float | None = None
    expected_start: datetime | None = None
    successor_at: float = 0.9
    held: Reason = Reason.NONE

    @property
    def serves(self) -> bool:
        """Whether the proxies may send requests there and it answers."""
        return self.status is Status.RUNNING and not self.is_bad and self.draining_since is None

    @property
    def is_bad(self) -> bool:
        """Whether its agent or the proxies report that it does not answer."""
        return self.unhealthy_since is not None or self.failing_since is not None


@dataclass(frozen=True, slots=True)
class StartHistory:
    """How long jobs waited in the queue of a resource group's site, and how long one endpoint's
    jobs took to load, both over the latest ``starts`` jobs."""

    starts: int
    queue_p50_s: float
    queue_p90_s: float
    load_p50_s: float
    load_p90_s: float

    def view(self, group: str) -> StartTimes:
        waits = (self.queue_p50_s, self.queue_p90_s)
        loads = (self.load_p50_s, self.load_p90_s)
        p50, p90 = (
            (round(wait, 3), round(load, 3)) for wait, load in zip(waits, loads, strict=True)
        )

        return StartTimes(
            resource_group=group,
            starts=self.starts,
            queue_wait_p50_s=p50[0],
            queue_wait_p90_s=p90[0],
            load_p50_s=p50[1],
            load_p90_s=p90[1],
        )


@dataclass(frozen=True, slots=True)
class Stable:
    """The revision alongside which a canary is tried."""

    revision: int
    spec: EndpointSpec


@dataclass(frozen=True, slots=True)
class BudgetStop:
    """An exhausted budget that stops its payer's work, and the end of its period."""

    budget: str  # as in "project vision in gpu by the month"
    until: datetime


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    """``revision``: the revision that all replicas should have. ``proven``: all replicas have had
    this revision and been ready at the same time. ``fallback``: the revision that was served
    before.

    ``waiting``: requests that the proxies hold because no replica is ready. ``stable``: set if
    ``revision`` is a canary, which gets a share of the requests; None if it replaces all others.
    ``starts``: by resource group of kind hpc. ``stopped_by``: while it is set, the endpoint has no
    replicas.
    """

    endpoint_id: EndpointId
    name: str
    spec: EndpointSpec
    wanted: int
    changed_at: datetime
    deleted: bool
    # newest first: live replicas, and those that ended most recently
    replicas: tuple[ReplicaSnapshot, ...] = field(default=())
    owner: Owner = NOBODY
    revision: int = 1
    proven: bool = False
    fallback: int | None = None
    waiting: int = 0
    stable: Stable | None = None
    starts: Mapping[str, StartHistory] = field(default_factory=dict)
    stopped_by: BudgetStop | None = None


@dataclass(frozen=True, slots=True)
class LoadSample:
    """An endpoint's load at one moment. ``waiting``: requests in the queues of its engines.
    ``held``: requests that the proxies hold. ``kv_cache``: mean usage over the replicas that report
    it. ``first_token_s``: p90; None without requests. ``idle_s``: seconds since the last request,
    as far as all proxies know; None if no proxy reports. ``ready``: replicas that serve."""

    at: datetime
    ready: int = 0
    running: int = 0
    waiting: int = 0
    held: int = 0
    kv_cache: float | None = None
    request_rate: float | None = None
    first_token_s: float | None = None
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class AutoscaleDecision:
    """An autoscaling decision. ``replicas``: the desired number from now on. ``rule``: the rule
    that decided; empty if the number stays. ``look_at``: when the next decision may differ even if
    the load stays the same."""

    replicas: int
    rule: str = ""
    detail: str = ""
    look_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """Inputs of the decision in addition to the load. ``scaled_at``: last change of the desired
    number; ``active_since``: when the endpoint was changed or a replica became ready, so its idle
    time cannot have begun earlier. ``full_at``: running requests per replica when requests began to
    wait, if known."""

    policy: Autoscale
    wanted: int
    scaled_at: datetime
    active_since: datetime
    full_at: float | None = None
