"""Signals to a kernel's program that do not terminate it, for runtimes with
``Capabilities.signals``."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from moorage.agent.runtimes.base import Handle
from moorage.common.model.errors import MoorageError


class SignalRefused(MoorageError):
    """The signal was not sent: the program has no handler for it, or is not running."""

    code = "signal-refused"


@runtime_checkable
class Signalling(Protocol):
    async def signal(self, handle: Handle, name: str) -> None:
        """Send the signal called ``name``, such as HUP, to the main program. Returns when the
        program has received it and its handler has returned, as far as the runtime can observe
        this. Raises ``SignalRefused`` if the program has no handler for it, and
        ``RuntimeFailed``."""
        ...


def without_handler(name: str) -> SignalRefused:
    return SignalRefused(
        f"the program has no handler for SIG{name}: it would end, or ignore it",
        next_step="install a handler, or change `reload`",
    )
