"""Access to NVML: loading the library, and queries that may fail."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_LIBRARY = "libnvidia-ml.so.1"


def load_nvml() -> Any:
    """The ``pynvml`` module, or a message that says why NVML is unavailable. Without a driver the module is
    not imported, which saves 15 MiB of memory."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return f"no driver is installed (there is no {_LIBRARY})"
    try:
        import pynvml
    except ImportError:
        return "the package nvidia-ml-py is not installed"
    return pynvml


def query_or_none(nvml: Any, query: Callable[[], T]) -> T | None:
    """The result of ``query``; None if this driver or device does not answer it."""
    try:
        return query()
    except nvml.NVMLError:
        return None
