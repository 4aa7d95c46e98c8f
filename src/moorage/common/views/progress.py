"""REST model for the progress of programs."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class ProgressView(BaseModel):
    """Latest progress that a program reported."""

    fraction: float | None = Field(default=None, description="Fraction, 0 to 1.")
    step: int | None = None
    of: int | None = Field(default=None, description="Total number of steps.")
    message: str = ""
    problem: str = Field(default="", description="Why a later report from the program was ignored.")
    at: datetime = Field(description="When the manager received the report.")
