"""Reconciles the stored kernels of an agent with the agent's report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from moorage.common.link.messages import AgentInfo, Observation, Report
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.status import (
    LIVE,
    STARTING_STEPS,
    TERMINAL,
    ObservedState,
    Status,
    in_order,
)

# Kernels move forward in this order, except among ``STARTING_STEPS``, where the newest observation
# applies: a site may put a job back into its queue, and an agent may correct an earlier report.
STATUS_ORDER = in_order(LIVE)
_OBSERVED_STATUS = {
    ObservedState.PREPARING: Status.PREPARING,
    ObservedState.QUEUED: Status.QUEUED,
    ObservedState.CREATING: Status.CREATING,
    ObservedState.RUNNING: Status.RUNNING,
}


_ENDED = (ObservedState.EXITED, ObservedState.GONE)


@dataclass(frozen=True, slots=True)
class AgentUpdate:
    """The content of a report about an agent and its kernels.

    ``observed``: the kernels that changed; all kernels of the agent if ``whole``. ``absent``:
    kernels that the agent certainly does not have, because it has removed them, has not started
    them although ordered to, or must not run them and does not. ``unacknowledged``: kernels in
    orders that the agent has not acknowledged, so that it may still start them. ``info_changed``:
    ``info`` or ``draining`` may differ from what is stored. ``refuses_orders``: the agent
    acknowledges none of its orders. ``contact``: the agent is waiting for this report to be stored.
    ``reach_why``: why it dials out.
    """

    info: AgentInfo
    incarnation: str
    stream: int
    draining: bool
    observed: Mapping[KernelId, Observation]
    absent: frozenset[KernelId] = frozenset()
    unacknowledged: frozenset[KernelId] = frozenset()
    whole: bool = True
    info_changed: bool = True
    refuses_orders: bool = False
    contact: bool = False
    reach_why: str = ""

    @classmethod
    def of(cls, report: Report, absent: Iterable[KernelId] = ()) -> Self:
        """Create the update from a full report."""
        observed = {k.kernel_id: k for k in report.kernels}
        info = report.info
        return cls(
            info,
            report.incarnation,
            report.stream,
            report.draining,
            observed=observed,
            absent=frozenset(absent),
        )

    @property
    def agent_id(self) -> AgentId:
        return self.info.agent_id

    @property
    def ended(self) -> set[KernelId]:
        """Kernels that have ended or are absent."""
        return {*self.absent, *(k for k, seen in self.observed.items() if seen.state in _ENDED)}

    @property
    def is_heartbeat(self) -> bool:
        """Whether nothing has changed."""
        return not (self.whole or self.info_changed or self.observed or self.absent or self.contact)

    def with_unknown(self, kernels: Iterable[KernelId]) -> AgentUpdate:
        """The update with these kernels set to UNKNOWN even though the report does not include
        them."""
        unknown = {k: Observation(k, SessionId(""), ObservedState.UNKNOWN) for k in kernels}
        observed = {**self.observed, **unknown}
        absent = self.absent - unknown.keys()
        return replace(self, observed=observed, absent=absent) if unknown else self


class StoredKernel(NamedTuple):
    """Stored state of a kernel.

    ``start_detail``: the stored progress text of a kernel that is starting, otherwise None.
    ``expected_start`` and ``ends_at``: as in ``Observation``. ``address``: host and port, or None
    if unknown. ``is_silent``: its agent last reported UNKNOWN, if that was stored."""

    kernel_id: KernelId
    session_id: SessionId
    status: Status
    start_detail: str | None = None
    unhealthy: bool = False
    expected_start: float = 0.0
    ends_at: float = 0.0
    address: tuple[str, int] | None = None
    is_silent: bool = False
    kept_until: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel's new status, written only if ``old`` is still current."""

    kernel_id: KernelId
    old: Status
    new: Status
    observation: Observation


def next_kernel_status(status: Status, observation: Observation) -> Status:
    """A kernel's status after an observation. A kernel that has run does not start again, and
    UNKNOWN changes nothing."""
    if status in TERMINAL:
        return status

    if observation.state in _ENDED:
        succeeded = status is Status.TERMINATING or observation.reason is Reason.EXIT_ZERO
        return (
            Status.TERMINATED
            if succeeded or not REASONS[observation.reason].failure
            else Status.ERROR
        )

    new = _OBSERVED_STATUS.get(observation.state, status)
    if {status, new} <= STARTING_STEPS:
        return new

    return new if STATUS_ORDER.index(new) > STATUS_ORDER.index(status) else status


def kernel_changes(stored: Iterable[StoredKernel], update: AgentUpdate) -> list[KernelChange]:
    """The changes that an update makes to the agent's live kernels among ``stored``.

    A kernel that the agent has had and a full report omits is gone. The order for a new kernel may
    not have arrived yet, and a kernel that is being stopped may not have been withdrawn yet. Such
    kernels are gone only once they are listed as absent. A new progress text is a change even if
    the status stays the same, and so is different health of a running kernel. So is a queued job
    that its site or its agent no longer reports as queued.
    """
    changes = []
    for kernel in stored:
        kernel_id = kernel.kernel_id
        status = kernel.status
        if status in TERMINAL:
            continue

        observation = update.observed.get(kernel_id)
        if observation is None:
            if not (kernel_id in update.absent or (update.whole and _is_omitted(kernel, update))):
                continue

            reason = Reason.USER_REQUESTED if status is Status.TERMINATING else Reason.KERNEL_GONE
            observation = Observation(
                kernel_id, kernel.session_id, ObservedState.GONE, reason=reason
            )

        new = next_kernel_status(status, observation)
        progressed = (
            kernel.start_detail is not None
            and observation.detail != ""
            and _OBSERVED_STATUS.get(observation.state) is status
            and observation.detail != kernel.start_detail
        )
        judged = (
            new is status is Status.RUNNING
            and observation.state is ObservedState.RUNNING
            and (
                bool(observation.unhealthy) is not kernel.unhealthy
                or _is_kept_otherwise(kernel, observation)
            )
        )
        timed = _OBSERVED_STATUS.get(observation.state) is status and _times_differ(
            kernel, observation
        )
        silenced = (
            new is status is Status.QUEUED and _is_silent(observation) is not kernel.is_silent
        )
        moved = (
            kernel.address is not None and observation.port > 0 and new is status is Status.RUNNING
        )
        moved = moved and (observation.host, observation.port) != kernel.address
        if new is not status or progressed or judged or timed or moved or silenced:
            changes.append(KernelChange(kernel_id, status, new, observation))

    return changes


def _is_silent(observation: Observation) -> bool:
    return observation.state is ObservedState.UNKNOWN


def _times_differ(kernel: StoredKernel, observation: Observation) -> bool:
    """Whether the times differ. An end time that is briefly unknown keeps its former value."""
    starts = abs(observation.expected_start - kernel.expected_start) >= 1
    return starts or (observation.ends_at > 0 and abs(observation.ends_at - kernel.ends_at) >= 1)


def _is_kept_otherwise(kernel: StoredKernel, observation: Observation) -> bool:
    return abs(observation.kept_until - kernel.kept_until) >= 1


def _is_omitted(kernel: StoredKernel, update: AgentUpdate) -> bool:
    return (
        kernel.status not in (Status.SCHEDULED, Status.TERMINATING)
        and kernel.kernel_id not in update.unacknowledged
    )


def ended_kernels(
    stored: Iterable[StoredKernel], changes: Iterable[KernelChange], update: AgentUpdate
) -> list[KernelId]:
    """Kernels whose allocations can be freed: kernels that end with this update, and kernels that
    had been given up (agent lost, stop timed out) and that the agent now reports as ended or
    absent."""
    given_up = [k.kernel_id for k in stored if k.status in TERMINAL]
    return [c.kernel_id for c in changes if c.new in TERMINAL] + [
        k
        for k in given_up
        if k in update.absent
        or ((seen := update.observed.get(k)) is not None and seen.state in _ENDED)
    ]
