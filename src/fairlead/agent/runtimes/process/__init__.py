"""Kernels as plain processes of the node (decision 3)."""

from fairlead.agent.runtimes.process.runtime import ProcessRuntime

__all__ = ["ProcessRuntime"]
