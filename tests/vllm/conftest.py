"""Fixtures: a platform of real processes whose agent starts a real vLLM."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Platform, kernels_below

ROOT = Path(__file__).parents[2]


def command() -> str:
    found = os.environ.get("MOORAGE_TEST_VLLM") or ROOT / ".venv-vllm" / "bin" / "vllm"
    if not shutil.which(str(found)):
        pytest.fail(
            f"no vLLM at {found}: `tools/environment vllm` installs it, or set MOORAGE_TEST_VLLM"
        )
    return str(found)


@pytest.fixture(scope="session")
def platform(reachable_dir: Path) -> Iterator[Platform]:
    home = reachable_dir / "vllm"
    home.mkdir(mode=0o711)
    made = Platform(home)
    made.start("up", "--set", f"agent.vllm_command={command()}")
    yield made
    made.close()
    assert kernels_below(made.home) == {}
