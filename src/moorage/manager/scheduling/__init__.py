"""Deciding who runs where: pure functions over frozen values; the loop around them is elsewhere."""

from moorage.manager.scheduling.core.explain import explain
from moorage.manager.scheduling.core.model import AgentState, DeviceState, Pending, Snapshot
from moorage.manager.scheduling.core.plan import plan
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Hold, Place, Plan

__all__ = [
    "AgentState",
    "DeviceState",
    "Hold",
    "Pending",
    "Place",
    "Plan",
    "Policy",
    "Snapshot",
    "explain",
    "plan",
]
