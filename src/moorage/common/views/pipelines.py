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
    started_at: datetime | None = Field(
        default=None, description="Start of its program in its newest attempt. null: not started."
    )
    ended_at: datetime | None = Field(default=None, description="null: it has not ended.")
    attempt: int = Field(default=1, description="Number of its session's newest attempt.")
    exit_code: int | None = Field(
        default=None, description="Exit code of its main kernel. null: it has none."
    )
    adopted_from: str | None = Field(
        default=None, description="Session whose run it shares, or whose result it reused."
    )
    progress: ProgressView | None = Field(
        default=None, description="Progress of its session's main kernel."
    )


class FirstFailure(BaseModel):
    """The failed step that ended first."""

    step: str
    index: int | None = Field(default=None, description="The element's index in its array.")
    session_id: str
    session: str
    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    ended_at: datetime | None = None
    skipped: list[str] = Field(default=[], description="Steps that were skipped because of it.")


class ArrayView(BaseModel):
    """Array of a pipeline: one step with many elements."""

    step: str
    array: str = Field(description="Its indexes and its limit, as submitted.")
    counts: dict[StepState, int] = Field(description="Number of elements by state.")


class PipelineView(BaseModel):
    """Pipeline. Its state is derived from its steps; listings omit the steps."""

    id: str
    name: str
    project: str
    user: str
    created_at: datetime
    created_by: str
    deadline_at: datetime | None = Field(
        default=None,
        description="When its timeout_s passes. null: it has none, or the time has passed.",
    )
    state: StepState
    counts: dict[StepState, int] = Field(description="Number of steps and elements by state.")
    arrays: list[ArrayView] = Field(default=[], description="The steps that are arrays.")
    steps: list[StepView] = Field(default=[])
    first_failure: FirstFailure | None = Field(
        default=None,
        description="The failed step that ended first. Listings omit it, like the steps.",
    )
    warnings: list[str] = Field(default=[], description="Set only in the response to its creation.")


class PlannedPipeline(PipelineView):
    """The pipeline as it would be created. It and its sessions have no ids."""
