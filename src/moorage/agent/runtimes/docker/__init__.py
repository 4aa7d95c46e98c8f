"""Kernels as containers of a Docker Engine on the agent's node (decision 9)."""

from moorage.agent.runtimes.docker.container_config import Rules
from moorage.agent.runtimes.docker.disk import DiskFull, Housekeeping, Pulled
from moorage.agent.runtimes.docker.engine import Engine, engine_socket
from moorage.agent.runtimes.docker.errors import Away
from moorage.agent.runtimes.docker.image_gc import GcRules
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
