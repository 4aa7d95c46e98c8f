"""What every daemon does at its edges: run until a signal, and leave its address."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from moorage.common.aio import gc
from moorage.common.model.errors import StartupError


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


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run to the end, on uvloop where it is installed: the exit code of ``main``."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def need(extra: str, error: ImportError) -> StartupError:
    """What to raise where an extra of the installation is missing."""
    return StartupError(
        f"this installation lacks what `moorage {extra}` needs: {error.name or error}",
        next_step=f"pip install 'moorage[{extra}]'",
    )


async def serve(part: AbstractAsyncContextManager[Any], ready: Callable[[Any], None]) -> int:
    """Until a signal. ``ready`` is called once it runs."""
    stopped = until_signalled()
    async with part as entered:
        gc.calm()
        ready(entered)
        await stopped.wait()
    return 0
