"""Deciding who runs where: pure functions over frozen values; the loop around them is elsewhere."""

from fairlead.manager.scheduling.answer import Hold, Place, Plan
from fairlead.manager.scheduling.explain import explain
from fairlead.manager.scheduling.model import AgentState, DeviceState, Pending, Snapshot
from fairlead.manager.scheduling.plan import plan
from fairlead.manager.scheduling.policy import Policy

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
