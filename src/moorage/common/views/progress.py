"""REST model of the progress of programs."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class ProgressView(BaseModel):
    """What a program reported last of its progress."""

    fraction: float | None = Field(default=None, description="0 to 1.")
    step: int | None = None
    of: int | None = Field(default=None, description="Number of all steps.")
    message: str = ""
    problem: str = Field(default="", description="Why what the program reported since was ignored.")
    at: datetime = Field(description="When the manager received it.")
