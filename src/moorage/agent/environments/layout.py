"""Layout of the environments of engines on this node. ``current`` is a link to the one that is
used, which is made when it is complete: whoever follows it never meets half an environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CURRENT = "current"


def engines_folder(env: Mapping[str, str]) -> Path:
    """Beside the hub's cache. Kernels without a user of their own inherit the agent's
    ``XDG_CACHE_HOME``."""
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "moorage" / "engines"


def prepared_program(env: Mapping[str, str], engine: str) -> Path:
    """The engine's program in its environment, which need not exist."""
    return engines_folder(env) / engine / CURRENT / "bin" / engine
