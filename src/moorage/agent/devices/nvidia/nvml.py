"""NVML queries that may fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def query_or_none(nvml: Any, query: Callable[[], T]) -> T | None:
    """The result of ``query``; None if this driver or device does not answer it."""
    try:
        return query()
    except nvml.NVMLError:
        return None
