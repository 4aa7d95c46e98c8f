"""Checkpoint signal of a session as users write it, validated: what its program gets before
SIGTERM."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from moorage.common.model.base import Model
from moorage.common.model.reload import ReloadSignal
from moorage.common.model.runtimes import traits_of

# Of resource groups that do not say.
MAX_GRACE_S = 300.0


class Checkpoint(Model):
    """Signal with which the program is asked to save its state and to end, before it gets
    SIGTERM."""

    signal: ReloadSignal = Field(
        default="USR1",
        description=(
            "To the main program of each kernel. A program without a handler gets SIGTERM at once."
        ),
    )
    grace_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60,
        description="Time between this signal and SIGTERM, if the program does not end before, in "
        "seconds; "
        "at most `preemption.max_grace_s` of the resource group.",
    )


def granted_grace_s(asked_s: float | None, bound_s: float | None) -> float:
    """What a session gets to save its state, in seconds. None: it does not ask, or its resource
    group does not say."""
    return min(asked_s or 0.0, MAX_GRACE_S if bound_s is None else bound_s)


def find_checkpoint_problem(runtime: str) -> str:
    """Why programs in a runtime get no checkpoint signal, as a sentence; "": they do."""
    if traits_of(runtime).signals:
        return ""
    return (
        f"`checkpoint.signal`: runtime {runtime!r} sends its programs no signals other than those "
        "that end "
        "them; leave `checkpoint` out and handle SIGTERM within `stop_grace_s`"
    )
