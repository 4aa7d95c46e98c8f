"""Stopping programs with SIGSTOP."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path


async def freeze(pid: int, *, timeout_s: float = 20.0) -> None:
    """Stop a program, and return when it has stopped.

    One of its threads handles the signal when it next gets a CPU. Until then the others continue,
    and respond.
    """
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(timeout_s):
        while not all(_is_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
            await asyncio.sleep(0.005)


def _is_stopped(thread: Path) -> bool:
    """Judged by the state, which follows the name in parentheses. Also true for a thread that has
    ended."""
    try:
        stat = (thread / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "T"
