"""Deciding who runs where: pure functions over frozen values; the loop around them is elsewhere."""

from moorage.manager.scheduling.core.messages import refusal_message
from moorage.manager.scheduling.core.model import AgentState, DeviceState, Pending, Snapshot
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Hold, Place, Plan
from moorage.manager.scheduling.planning.plan import plan

__all__ = [
    "AgentState",
    "DeviceState",
    "Hold",
    "Pending",
    "Place",
    "Plan",
    "Policy",
    "Snapshot",
    "plan",
    "refusal_message",
]
