"""Networks of sandboxed kernels left by a test's agent: a killed agent removes none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from zlib import crc32

_NAMESPACES = Path("/run/netns")


def remove_networks(home: Path) -> None:
    """Remove the networks of all agents with a state directory in ``home``. Their kernels have
    ended."""
    if os.geteuid() != 0:
        return

    for state in home.glob("agent-*"):
        name = f"{crc32(os.fsencode(state.resolve())):08x}"
        left = sorted(_NAMESPACES.glob(f"moorage-{name}-*"))
        for namespace in left:
            subprocess.run(
                ["ip", "netns", "delete", namespace.name], check=False, capture_output=True
            )

        if left:
            table = ["nft", "delete", "table", "inet", f"moorage_net_{name}"]
            subprocess.run(table, check=False, capture_output=True)
