"""REST model for a session's place in a pipeline."""

from __future__ import annotations

from pydantic import BaseModel, Field


class StepRef(BaseModel):
    """Step, or array element, that a session runs."""

    id: str = Field(description="Id of the pipeline.")
    name: str = Field(description="Name of the pipeline.")
    step: str
    index: int | None = Field(default=None, description="The element's index in its array.")
    run: int = Field(description="1, plus one for each retry of the step.")
