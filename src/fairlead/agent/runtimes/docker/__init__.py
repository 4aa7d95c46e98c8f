"""Kernels as containers of a Docker Engine on the agent's node (decision 9)."""

from fairlead.agent.runtimes.docker.engine import Engine, engine_socket
from fairlead.agent.runtimes.docker.failures import Away
from fairlead.agent.runtimes.docker.garbage import GcRules
from fairlead.agent.runtimes.docker.housekeeping import DiskFull, Housekeeping, Pulled
from fairlead.agent.runtimes.docker.rules import Rules
from fairlead.agent.runtimes.docker.runtime import DockerRuntime

__all__ = [
    "Away",
    "DiskFull",
    "DockerRuntime",
    "Engine",
    "GcRules",
    "Housekeeping",
    "Pulled",
    "Rules",
    "engine_socket",
]
