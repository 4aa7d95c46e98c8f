"""Signals to the main program of a process kernel.

A program has handled a signal that is neither pending nor blocked by its running handler. A program
that always blocks the signal receives it when it waits for signals, and has handled it once the
signal is no longer pending.
"""

from __future__ import annotations

import asyncio
from signal import Signals

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.signals import SignalRefused, without_handler

_POLL_S = 0.02
_ENDED = "the program has ended"


async def deliver(pid: int, start: int, name: str) -> None:
    """Send the signal to exactly this process, and wait until it has been handled. Raises
    ``SignalRefused``."""
    number = Signals[f"SIG{name}"]
    sets = procfs.signal_sets(pid) if procfs.alive(pid, start) else None
    if sets is None:
        raise SignalRefused(_ENDED)

    waits_for_it = sets.has(sets.blocked, number)
    if not waits_for_it and not sets.has(sets.caught, number):
        raise without_handler(name)
    if not procfs.send_signal(pid, number, lambda: procfs.alive(pid, start)):
        raise SignalRefused(_ENDED)

    while True:
        sets = procfs.signal_sets(pid) if procfs.alive(pid, start) else None
        if sets is None:
            raise SignalRefused("the program has ended since it got the signal")

        is_handled = waits_for_it or not sets.has(sets.blocked, number)
        if is_handled and not sets.has(sets.pending, number):
            return

        await asyncio.sleep(_POLL_S)
