"""What kernels run. ``base`` is the seam; an engine only says how it is called and when it is ready."""

from moorage.agent.engines.base import Engine, Invocation, Probe, Site, environment, needs_port
from moorage.agent.engines.custom import CustomEngine
from moorage.agent.engines.llamacpp import LlamaCppEngine
from moorage.agent.engines.vllm import VllmEngine

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (LlamaCppEngine(), VllmEngine(), CustomEngine())
}

__all__ = ["ENGINES", "Engine", "Invocation", "Probe", "Site", "environment", "needs_port"]
