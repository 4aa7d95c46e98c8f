"""A session's checkpoint signal, as users write it, with validation. The session's program receives
the signal before SIGTERM."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from moorage.common.model.base import Model
from moorage.common.model.reload import ReloadSignal
from moorage.common.model.runtimes import traits_of

# Used by resource groups that do not set a value.
MAX_GRACE_S = 300.0


class Checkpoint(Model):
    """Signal that asks the program to save its state and exit before it receives SIGTERM."""

    signal: ReloadSignal = Field(
        default="USR1",
        description=(
            "Signal sent to the main program of each kernel. A program without a handler "
            "receives SIGTERM immediately."
        ),
    )
    grace_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60,
        description=(
            "Seconds between this signal and SIGTERM, unless the program exits earlier; at most "
            "`preemption.max_grace_s` of the resource group."
        ),
    )


def granted_grace_s(asked_s: float | None, bound_s: float | None) -> float:
    """Seconds that a session gets to save its state. None if it has no checkpoint signal, or its
    resource group sets no limit."""
    return min(asked_s or 0.0, MAX_GRACE_S if bound_s is None else bound_s)


def find_checkpoint_problem(runtime: str) -> str:
    """Explain why programs in a runtime cannot receive a checkpoint signal; "" if they can."""
    if traits_of(runtime).signals:
        return ""
    return (
        f"`checkpoint.signal`: runtime {runtime!r} cannot send its programs signals other than "
        "those that end them; omit `checkpoint` and handle SIGTERM within `stop_grace_s`"
    )
