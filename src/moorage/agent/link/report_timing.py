"""How long news may wait for company before they are reported, in seconds.

A message costs both ends more than what it says. That a kernel serves or has ended is waited for: it goes
at once. That it is on its way is only worth a message of its own when it stays so; and that orders were
taken, or that something which had ended before was cleared away, changes nothing that anybody decides.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.common.model.status import ObservedState

AT_ONCE = 0.0
PASSING = 0.05
HOUSEKEEPING = 0.5

# Called with how long the news may wait.
Changed = Callable[[float], None]

_PASSING = (ObservedState.PREPARING, ObservedState.CREATING, ObservedState.STOPPING)


def may_wait(state: ObservedState) -> float:
    """For a kernel that has come to this state."""
    return PASSING if state in _PASSING else AT_ONCE
