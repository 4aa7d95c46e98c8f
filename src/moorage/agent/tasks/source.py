"""Text of the task runner, which is an argument of its interpreter."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def runner_source() -> str:
    return resources.files(__package__).joinpath("runner.py").read_text(encoding="utf-8")
