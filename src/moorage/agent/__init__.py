"""Agent: runs the kernels of one node and reports their state to the manager."""

from moorage.agent.service import Agent
from moorage.agent.sites import Sites

__all__ = ["Agent", "Sites"]
