"""Engines: how a kernel's main program is invoked and when it is ready. ``base`` has the
interface."""

from moorage.agent.engines.base import (
    Engine,
    Invocation,
    NodeInfo,
    ReadinessProbe,
    environment,
    needs_port,
)
from moorage.agent.engines.custom import CustomEngine
from moorage.agent.engines.llamacpp import LlamaCppEngine
from moorage.agent.engines.vllm import VllmEngine

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (LlamaCppEngine(), VllmEngine(), CustomEngine())
}

__all__ = [
    "ENGINES",
    "Engine",
    "Invocation",
    "NodeInfo",
    "ReadinessProbe",
    "environment",
    "needs_port",
]
