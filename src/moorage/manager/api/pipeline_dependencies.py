"""Pipelines as the API uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from moorage.common.model.paging import Paging
from moorage.common.model.pipelines import PipelineSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads.pipeline_steps import (
    Count,
    NewStep,
    OnceOnly,
    PipelineState,
    StepRow,
    StoredPipeline,
)


class Pipelines(Protocol):
    """A ``ref`` is a pipeline's id, else the name of the newest."""

    async def create(
        self,
        scope: Scope,
        pipeline: PipelineSpec,
        steps: Sequence[NewStep],
        *,
        once: OnceOnly | None,
        forced: bool,
    ) -> PipelineState: ...

    async def created_under(self, once: OnceOnly) -> str | None: ...

    async def add_runs(
        self,
        scope: Scope,
        before: StoredPipeline,
        steps: Sequence[NewStep],
        known: Mapping[int, str],
        pending: Mapping[str, int | None],
    ) -> bool: ...

    async def get(self, scope: Scope, ref: str) -> StoredPipeline: ...

    async def page(
        self, scope: Scope, paging: Paging, *, project: str | None
    ) -> tuple[list[StoredPipeline], str | None]: ...

    async def steps(self, pipeline_id: str) -> list[StepRow]: ...
    async def counts(self, ids: Sequence[str]) -> dict[str, list[Count]]: ...
