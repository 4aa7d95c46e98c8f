"""Kernels as containers of a Docker Engine on the agent's node (decision 9)."""

from moorage.agent.runtimes.docker.container_config import ContainerRules
from moorage.agent.runtimes.docker.disk import DiskFull, ImageGarbageCollector, PulledImages
from moorage.agent.runtimes.docker.engine import Engine, engine_socket
from moorage.agent.runtimes.docker.errors import EngineUnavailable
from moorage.agent.runtimes.docker.image_gc import ImageGcRules
from moorage.agent.runtimes.docker.runtime import DockerRuntime

__all__ = [
    "ContainerRules",
    "DiskFull",
    "DockerRuntime",
    "Engine",
    "EngineUnavailable",
    "ImageGarbageCollector",
    "ImageGcRules",
    "PulledImages",
    "engine_socket",
]
