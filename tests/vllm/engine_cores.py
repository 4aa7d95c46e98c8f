"""Engine cores of vLLM: the processes below its API servers that run the model."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def cores(kernel_pids: Collection[int]) -> list[int]:
    """The engine cores of these API servers. They rename themselves, and so lose their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            name = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if name.startswith(b"VLLM::EngineCore") and parent in kernel_pids:
            found.append(int(entry.name))
    return sorted(found)
