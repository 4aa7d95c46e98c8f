"""Layout of the environments of engines on this node. ``current`` is a link to the environment in
use. It is created once the environment is complete, so it never leads to a half-built
environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CURRENT = "current"


def engines_folder(env: Mapping[str, str]) -> Path:
    """The folder for engines, beside the hub's cache. Kernels without their own user inherit the
    agent's ``XDG_CACHE_HOME``."""
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "moorage" / "engines"


def prepared_program(env: Mapping[str, str], engine: str) -> Path:
    """The path of the engine's program in its environment. The file may not exist."""
    return engines_folder(env) / engine / CURRENT / "bin" / engine
