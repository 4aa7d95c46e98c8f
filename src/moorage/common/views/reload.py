"""REST model for reloading a kernel's program."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from moorage.common.model.kernel import ReloadOutcome

ReloadState = ReloadOutcome | Literal["requested", "ended"]


class ReloadView(BaseModel):
    """A kernel's newest reload request, and its outcome or that of the previous request."""

    generation: int = Field(
        description="Generation of the newest request; grows with each request."
    )
    state: ReloadState = Field(
        description=(
            "requested: not acknowledged yet. ended: the kernel ended before it acknowledged."
        )
    )
    requested_at: datetime
    requested_by: str
    detail: str = Field(default="", description="Why the reload of generation `ended` failed.")
    ended: int = Field(
        default=0, description="Generation of the newest reload that has ended; 0 if none."
    )
    ended_at: datetime | None = Field(
        default=None, description="When the manager received the outcome."
    )
