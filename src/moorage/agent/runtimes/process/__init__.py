"""Runtime that runs kernels as processes on the node, each under its own supervisor (decision
3)."""

from moorage.agent.runtimes.process.runtime import ProcessRuntime

__all__ = ["ProcessRuntime"]
