"""Deciding who runs where: pure functions over frozen values; the loop around them is elsewhere."""

from moorage.manager.scheduling.answer import Hold, Place, Plan
from moorage.manager.scheduling.explain import explain
from moorage.manager.scheduling.model import AgentState, DeviceState, Pending, Snapshot
from moorage.manager.scheduling.plan import plan
from moorage.manager.scheduling.policy import Policy

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
