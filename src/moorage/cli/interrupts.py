"""Interrupts of a waiting command. SIGTERM, which batch systems and CI send, ends it like
Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moorage.cli.exit_codes import INTERRUPTED

_TERMINATED = 128 + signal.SIGTERM


@dataclass
class Interrupt:
    exit_code: int = INTERRUPTED


@contextmanager
def terminated_like_ctrl_c() -> Iterator[Interrupt]:
    """Let SIGTERM also raise ``KeyboardInterrupt``. ``exit_code`` is the exit code for the received
    signal."""
    interrupt = Interrupt()

    def terminate(_: int, frame: Any) -> None:
        interrupt.exit_code = _TERMINATED
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # a shell's background job ignores Ctrl-C
            raise KeyboardInterrupt
        # asyncio's handler cancels the main task. An exception raised at an arbitrary place could
        # be lost, for example in a finalizer.
        handler(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGTERM, before)
