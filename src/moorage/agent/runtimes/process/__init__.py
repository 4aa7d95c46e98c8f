"""Kernels as plain processes of the node (decision 3)."""

from moorage.agent.runtimes.process.runtime import ProcessRuntime

__all__ = ["ProcessRuntime"]
