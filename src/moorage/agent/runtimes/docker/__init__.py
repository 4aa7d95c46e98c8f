"""Kernels as containers of a Docker Engine on the agent's node (decision 9)."""

from moorage.agent.runtimes.docker.engine import Engine, engine_socket
from moorage.agent.runtimes.docker.failures import Away
from moorage.agent.runtimes.docker.garbage import GcRules
from moorage.agent.runtimes.docker.housekeeping import DiskFull, Housekeeping, Pulled
from moorage.agent.runtimes.docker.rules import Rules
from moorage.agent.runtimes.docker.runtime import DockerRuntime

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
