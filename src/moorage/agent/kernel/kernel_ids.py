"""Kernel ids from outside the agent: in managers' orders, and in the environment of processes."""

from __future__ import annotations

import re

import structlog

from moorage.agent.kernel.checkpoint import validate_kernel_id
from moorage.common.link.messages import Observation
from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.kernel.manager")
# The format of the ids that managers issue. A foreign process may have any value in its
# environment.
_KERNEL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def orphan_observation(kernel_id: KernelId) -> Observation | None:
    """The observation of a kernel that a runtime has found; None if no manager can have issued its
    id."""
    if not _KERNEL_ID.fullmatch(kernel_id):
        return None
    return Observation(kernel_id, SessionId(""), ObservedState.UNKNOWN)


def is_usable(spec: KernelSpec) -> bool:
    try:
        validate_kernel_id(spec.kernel_id)
    except InvalidInput as error:
        log.error("ignoring an order with an invalid kernel id", error=str(error))
        return False
    return True
