"""The agent: runs the kernels of one node and tells the manager the truth about them."""

from moorage.agent.service import Agent

__all__ = ["Agent"]
