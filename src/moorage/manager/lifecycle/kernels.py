"""Reconciles the stored kernels of an agent with the agent's report. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.status import TERMINAL, ObservedState, Status

# Kernels move only forward in this order.
STATUS_ORDER = [
    Status.PENDING,
    Status.SCHEDULED,
    Status.PREPARING,
    Status.CREATING,
    Status.RUNNING,
    Status.TERMINATING,
]
_OBSERVED_STATUS = {
    ObservedState.PREPARING: Status.PREPARING,
    ObservedState.CREATING: Status.CREATING,
    ObservedState.RUNNING: Status.RUNNING,
}


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel's new status, written only if ``old`` still holds."""

    kernel_id: KernelId
    old: Status
    new: Status
    observation: Observation


def next_kernel_status(status: Status, observation: Observation) -> Status:
    """A kernel's status after an observation: it moves only forward, and UNKNOWN changes nothing."""
    if status in TERMINAL:
        return status
    if observation.state in (ObservedState.EXITED, ObservedState.GONE):
        succeeded = status is Status.TERMINATING or observation.reason is Reason.EXIT_ZERO
        return Status.TERMINATED if succeeded or not REASONS[observation.reason].failure else Status.ERROR
    new = _OBSERVED_STATUS.get(observation.state, status)
    return new if STATUS_ORDER.index(new) > STATUS_ORDER.index(status) else status


def kernel_changes(
    stored: Sequence[tuple[KernelId, SessionId, Status]],
    observed: Mapping[KernelId, Observation],
    accepted: Collection[KernelId] | None,
    progress: Mapping[KernelId, str] = MappingProxyType({}),
) -> list[KernelChange]:
    """The changes that a full report makes to the agent's live kernels.

    ``accepted``: the kernels in the orders that the agent has accepted; None when the content of those
    orders is not known (an earlier manager sent them). A kernel that the report omits is gone in three cases:
    the agent had it before, it accepted orders that name it, or (for a TERMINATING kernel) it accepted orders
    that no longer name it. Otherwise the orders have not arrived yet.

    ``progress``: the stored progress text of kernels that are starting. A new text for one of them is a
    change, even though the status stays the same.
    """
    changes = []
    for kernel_id, session_id, status in stored:
        observation = observed.get(kernel_id)
        if observation is None:
            named = accepted is not None and kernel_id in accepted
            withdrawn = accepted is not None and kernel_id not in accepted
            if not (withdrawn if status is Status.TERMINATING else named or status is not Status.SCHEDULED):
                continue
            reason = Reason.USER_REQUESTED if status is Status.TERMINATING else Reason.KERNEL_GONE
            observation = Observation(kernel_id, session_id, ObservedState.GONE, reason=reason)
        new = next_kernel_status(status, observation)
        progressed = (
            kernel_id in progress
            and observation.detail != ""
            and _OBSERVED_STATUS.get(observation.state) is status
            and observation.detail != progress[kernel_id]
        )
        if new is not status or progressed:
            changes.append(KernelChange(kernel_id, status, new, observation))
    return changes
