"""Process lifecycle of a daemon: event loop, signals, and the connection file."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import structlog

from moorage.common.aio import gc
from moorage.common.aio.tasks import FAILURES, OTHER
from moorage.common.model.errors import StartupError
from moorage.common.model.extras import explain_import_error

log = structlog.get_logger("moorage.process")

# Read when gRPC is first imported. Without this setting, gRPC would log errors that our own log
# lines already report.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def write_connection_file(home: Path, **addresses: str) -> None:
    """Merge ``addresses`` into ``connection.json``, which the command line reads.

    A node's daemons start together and share the file, so each waits for the others' changes."""
    path = home / "connection.json"
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            known = {}

        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(known | addresses, indent=2) + "\n")
        temporary.replace(path)


def shutdown_event() -> asyncio.Event:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets. A second one has its default effect.
    An ignored SIGHUP, as under ``nohup``, stays ignored."""
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        shutdown.set()
        loop.remove_signal_handler(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)  # the default effect would interrupt running work

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)

    return shutdown


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run ``main`` to completion, on uvloop if it is installed, and return its exit code."""

    async def handled() -> int:
        asyncio.get_running_loop().set_exception_handler(_log_unhandled)
        return await main

    try:
        import uvloop
    except ImportError:
        return asyncio.run(handled())

    return uvloop.run(handled())


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Count an error in a callback, which has no caller, as a background task failure."""
    FAILURES[OTHER] += 1
    log.error(
        "unhandled error in the event loop",
        what=context["message"],
        exc_info=context.get("exception"),
    )


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """A context for a command's optional imports. Raises ``StartupError`` if a package, or a system
    library that it needs, is missing."""
    try:
        yield
    except ImportError as error:
        missing, next_step = explain_import_error(error, extra)
        raise StartupError(f"this needs {missing}", next_step=next_step) from error


async def serve(
    component: AbstractAsyncContextManager[Any], on_ready: Callable[[Any], None]
) -> int:
    """Run ``component`` until a signal arrives. Calls ``on_ready`` with the component once it has
    been entered."""
    shutdown = shutdown_event()
    async with component as entered:
        gc.freeze_startup_objects()
        on_ready(entered)
        await shutdown.wait()
    return 0
