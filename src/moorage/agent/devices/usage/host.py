"""What the whole node uses, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


def node_counters(root: Path = Path("/")) -> tuple[int, int]:
    """Processor time so far in microseconds, and memory in use now in bytes. Raises ``OSError``."""
    fields = (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _waiting, hard, soft, stolen = map(int, fields)
    memory = {}
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            memory[name] = int(rest.split()[0]) * 1024
    used = memory.get("MemTotal", 0) - memory.get("MemAvailable", 0)
    return (user + nice + system + hard + soft + stolen) * _TICK_US, used
