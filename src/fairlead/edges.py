"""What every daemon does at its edges: leave its address, and wait for a signal."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path


def note_connection(home: Path, **addresses: str) -> None:
    """Leave addresses in ``connection.json``, where the command line looks for them."""
    path = home / "connection.json"
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(known | addresses, indent=2) + "\n")
    temporary.replace(path)


def until_signalled() -> asyncio.Event:
    """An event that the first SIGINT or SIGTERM sets; a second one has its ordinary effect."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(which: signal.Signals) -> None:
        stopped.set()
        loop.remove_signal_handler(which)

    for which in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(which, stop, which)
    return stopped
