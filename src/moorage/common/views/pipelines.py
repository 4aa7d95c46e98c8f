"""REST models for pipelines."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from moorage.common.model.pipelines import After, StepState
from moorage.common.views.progress import ProgressView


class StepView(BaseModel):
    """Step, or one element of its array. ``run``: 1, plus one for each retry."""

    name: str
    index: int | None = Field(default=None, description="The element's index in its array.")
    state: StepState
    after: list[After] = Field(default=[])
    run: int
    session_id: str
    session: str = Field(description="Name of its session.")
    reason: str = ""
    detail: str = ""
    adopted_from: str | None = Field(
        default=None, description="Session whose run it shares, or whose result it reused."
    )
    progress: ProgressView | None = Field(
        default=None, description="Progress of its session's main kernel."
    )


class PipelineView(BaseModel):
    """Pipeline. Its state is derived from its steps; listings omit the steps."""

    id: str
    name: str
    project: str
    user: str
    created_at: datetime
    created_by: str
    state: StepState
    counts: dict[StepState, int] = Field(description="Number of steps and elements by state.")
    steps: list[StepView] = Field(default=[])
    warnings: list[str] = Field(default=[], description="Set only in the response to its creation.")


class PlannedPipeline(PipelineView):
    """The pipeline as it would be created. It and its sessions have no ids."""
