"""Check for an NVIDIA GPU: ``python -m tests.gpu.prepare`` prints what is missing and exits with
1."""

from __future__ import annotations

import ctypes
import sys


def missing_requirement() -> str:
    """The first missing requirement, or "" if the tests can run."""
    try:
        import pynvml
    except ImportError:
        return "the package nvidia-ml-py is not installed: make install"

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return f"the NVIDIA driver does not answer: {error}"

    if not count:
        return "the NVIDIA driver has no GPU"

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"CUDA's driver library cannot be loaded: {error}"

    return ""


if __name__ == "__main__":
    missing = missing_requirement()
    print(missing)
    sys.exit(1 if missing else 0)
