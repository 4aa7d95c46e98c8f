"""Engine cores of vLLM: the processes below its API servers that run the model."""

from __future__ import annotations

import os
from pathlib import Path


def cores(home: Path) -> list[int]:
    """Those below ``home``. They rename themselves, and so lose their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            name, directory = (entry / "cmdline").read_bytes(), os.readlink(entry / "cwd")
        except OSError:
            continue
        if name.startswith(b"VLLM::EngineCore") and directory.startswith(str(home)):
            found.append(int(entry.name))
    return sorted(found)
