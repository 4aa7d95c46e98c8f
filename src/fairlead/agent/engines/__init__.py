"""What kernels run. ``base`` is the seam; an engine only says how it is called and when it is ready."""

from fairlead.agent.engines.base import Engine, Invocation, Probe, Site, environment, needs_port
from fairlead.agent.engines.custom import CustomEngine
from fairlead.agent.engines.llamacpp import LlamaCppEngine
from fairlead.agent.engines.vllm import VllmEngine

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (LlamaCppEngine(), VllmEngine(), CustomEngine())
}

__all__ = ["ENGINES", "Engine", "Invocation", "Probe", "Site", "environment", "needs_port"]
