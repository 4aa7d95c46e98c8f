"""Coalescing windows for reports, in seconds: how long a change may wait so that others join its
report.

To both ends, a message costs more than its content. The manager acts immediately on a kernel that
has become ready or has ended, so such a change is reported immediately. A kernel in transition is
worth a message only if it stays in its state. Applied orders and removed kernels do not affect any
decision.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from moorage.common.model.status import ObservedState

IMMEDIATE = 0.0
TRANSIENT = 0.05
HOUSEKEEPING = 0.5
# Included in the next report, whenever it is sent.
UNHURRIED = inf

# Called on each change, with its coalescing window.
OnChange = Callable[[float], None]

_TRANSIENT_STATES = (
    ObservedState.PREPARING,
    ObservedState.QUEUED,
    ObservedState.CREATING,
    ObservedState.STOPPING,
)


def coalescing_window(state: ObservedState) -> float:
    """The window for a kernel's change to ``state``."""
    return TRANSIENT if state in _TRANSIENT_STATES else IMMEDIATE
