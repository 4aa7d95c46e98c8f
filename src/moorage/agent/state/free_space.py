"""Free space on the disk with an agent's state. Without free space, no kernel can start.

The agent reports a full disk before work is placed on it. Otherwise, placed work would fail and use
up an attempt, and while no other agent has room, all work would be placed here and fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger("moorage.agent.state")

# How often to check, in seconds.
FREE_SPACE_S = 5.0
# Below the first, there is too little space. From the second on, there is enough again.
LEAST_BYTES = 16 << 20
ENOUGH_BYTES = 32 << 20
LEAST_FILES = 100
ENOUGH_FILES = 200


class FreeSpace:
    """A monitor of free space. ``problem``: why no new kernel can start; empty if one can.
    ``on_change`` is called when this changes."""

    def __init__(self, state: Path, on_change: Callable[[], object] = lambda: None) -> None:
        self._state = state
        self._on_change = on_change
        self.problem = ""

    async def check(self) -> None:
        """Check the disk. If it cannot be checked, the last result is kept."""
        try:
            found = await asyncio.to_thread(os.statvfs, self._state)
        except OSError as error:
            log.warning(
                "cannot check the disk of the state", state=str(self._state), error=str(error)
            )
            return

        was_full = bool(self.problem)
        free = found.f_bavail * found.f_frsize
        few_bytes = free < (ENOUGH_BYTES if was_full else LEAST_BYTES)

        # A file system without a fixed number of files reports 0.
        few_files = found.f_files > 0 and found.f_favail < (
            ENOUGH_FILES if was_full else LEAST_FILES
        )
        is_full = few_bytes or few_files
        if is_full == was_full:
            return

        if is_full:
            left = f"{free >> 20} MiB" if few_bytes else f"{found.f_favail} files"
            self.problem = f"the disk of its state ({self._state}) is full: {left} left"
            log.error("the agent takes no new kernels", why=self.problem)
        else:
            self.problem = ""
            log.info("the agent takes new kernels again: the disk of its state has space")

        self._on_change()
