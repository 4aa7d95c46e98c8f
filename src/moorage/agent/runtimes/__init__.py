"""Runtimes run kernels: as processes, as Docker containers, as jobs, or as fakes. ``base`` defines
their interface."""

from moorage.agent.runtimes.base import (
    Counters,
    CreateFailed,
    Handle,
    Launch,
    Runtime,
    RuntimeFailed,
    RuntimeObservation,
)
from moorage.agent.runtimes.fake import FakeRuntime
from moorage.agent.runtimes.process import ProcessRuntime

__all__ = [
    "Counters",
    "CreateFailed",
    "FakeRuntime",
    "Handle",
    "Launch",
    "ProcessRuntime",
    "Runtime",
    "RuntimeFailed",
    "RuntimeObservation",
]
