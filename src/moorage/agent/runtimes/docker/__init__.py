"""Runtime that runs kernels as containers in a Docker Engine on the node (decision 9)."""

from moorage.agent.runtimes.docker.container_config import ContainerRules
from moorage.agent.runtimes.docker.engine import DockerEngine, engine_socket
from moorage.agent.runtimes.docker.errors import DiskFull, EngineUnavailable
from moorage.agent.runtimes.docker.image_gc import ImageGarbageCollector, ImageGcRules, PulledImages
from moorage.agent.runtimes.docker.runtime import DockerRuntime

__all__ = [
    "ContainerRules",
    "DiskFull",
    "DockerEngine",
    "DockerRuntime",
    "EngineUnavailable",
    "ImageGarbageCollector",
    "ImageGcRules",
    "PulledImages",
    "engine_socket",
]
