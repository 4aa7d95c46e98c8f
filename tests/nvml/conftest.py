"""Fixtures for tests with a scripted NVIDIA driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml.scripted import ScriptedNvml, compiler

MakeNvml = Callable[..., ScriptedNvml]


@pytest.fixture
def make_nvml(tmp_path: Path) -> MakeNvml:
    """Makes a machine's driver from the arguments of ``ScriptedNvml``."""
    if compiler() is None:
        pytest.skip("the scripted NVML needs a C compiler: apt install gcc libc6-dev")
    return lambda *arguments, **named: ScriptedNvml(tmp_path / "nvml", *arguments, **named)
