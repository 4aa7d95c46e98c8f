"""Inventory choice: the grammar of the setting ``agent.inventory``. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from moorage.common.model.errors import InvalidInput

_AUTO = re.compile(r"auto(?:\+cpu-slots:([1-9][0-9]{0,3}))?(?:\+cpu-overcommit:([1-9][0-9]?))?")
_FAKE = re.compile(r"fake:([0-9]{1,4})x([A-Za-z0-9][A-Za-z0-9_-]{0,31})(/nvlink)?")


@dataclass(frozen=True, slots=True)
class FakeGpus:
    """Simulated GPUs. ``nvlink``: the GPUs of each half are linked."""

    count: int
    model: str
    nvlink: bool


@dataclass(frozen=True, slots=True)
class OwnDevices:
    """The node's devices.

    On a node without a GPU, ``cpu_slots`` is the number of slots offered as GPUs (0 for none), and
    each CPU is offered ``cpu_factor`` times."""

    cpu_slots: int = 0
    cpu_factor: int = 1


def parse_inventory(setting: str) -> FakeGpus | OwnDevices:
    """Parse the setting. Raises ``InvalidInput``."""
    if match := _FAKE.fullmatch(setting):
        return FakeGpus(int(match[1]), match[2], bool(match[3]))
    if match := _AUTO.fullmatch(setting):
        return OwnDevices(int(match[1] or 0), int(match[2] or 1))

    raise InvalidInput(
        f"{setting!r} is not an inventory",
        next_step="use auto, auto+cpu-slots:4, auto+cpu-overcommit:4, or fake:NxMODEL like "
        "fake:8xH100 "
        "or fake:8xH100/nvlink",
    )
