"""Runtime that runs kernels as processes of the node, each under its own supervisor (decision
3)."""

from moorage.agent.runtimes.process.runtime import ProcessRuntime

__all__ = ["ProcessRuntime"]
