"""Runtime that runs kernels as processes of the node, each under a supervisor of its own (decision
3)."""

from moorage.agent.runtimes.process.runtime import ProcessRuntime

__all__ = ["ProcessRuntime"]
