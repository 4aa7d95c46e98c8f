"""Stored steps of pipelines: those to be created, and existing ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from moorage.common.model.ids import SessionId
from moorage.common.model.pipelines import (
    After,
    PipelineSpec,
    stored_arrays,
    stored_conditions,
)
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Result, Status
from moorage.common.views.progress import ProgressView
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.workloads.step_outputs import StepFiles


@dataclass(frozen=True, slots=True)
class NewStep:
    """A session to be created for a pipeline. ``waits``: positions of the sessions on which it
    depends, each with the condition. ``spec``: without dependencies. ``isolated``: its template is
    isolated, so it runs isolated, no matter who submits it. ``index``: an array element's index.
    ``at_once``: how many elements of its array may run at a time; None if there is no limit.
    ``files``: None if it has neither outputs nor inputs. ``meaning`` and ``adopted_from``: see
    ``step_reuse``."""

    step: str
    index: int | None
    run: int
    position: int
    spec: SessionSpec
    template: str | None
    waits: Sequence[tuple[int, str]]
    at_once: int | None = None
    files: StepFiles | None = None
    meaning: str | None = None
    adopted_from: str | None = None
    isolated: bool = False


@dataclass(frozen=True, slots=True)
class OnceOnly:
    """Idempotency key of a submission, and the digest of its request."""

    key: IdempotencyKey
    digest: str

    @classmethod
    def of(cls, key: IdempotencyKey, request: PipelineSpec) -> OnceOnly:
        """Digest a request. Field order makes no difference."""
        plain = json.dumps(request.model_dump(mode="json", exclude_unset=True), sort_keys=True)
        return cls(key, hashlib.sha256(plain.encode()).hexdigest())


@dataclass(frozen=True)
class StoredPipeline:
    """``text``: its specification as JSON, which is large and is read only where needed.
    ``deadline_at``: when its time is up; None if it has no limit, or once its stop was requested.
    ``stopping``: a stop was requested, but not all of its steps have begun to stop."""

    id: str
    name: str
    project: str
    owner: str
    created_at: datetime
    created_by: str
    text: str
    stopping: bool = False
    deadline_at: datetime | None = None

    @cached_property
    def spec(self) -> PipelineSpec:
        return PipelineSpec.model_validate_json(self.text)

    @cached_property
    def conditions(self) -> Mapping[str, Sequence[After]]:
        """Conditions by step."""
        return stored_conditions(self.text)

    @cached_property
    def arrays(self) -> Mapping[str, str]:
        """Arrays by step."""
        return stored_arrays(self.text)


@dataclass(frozen=True, slots=True)
class StepRow:
    """The latest run of a step, or of an element of its array."""

    step: str
    index: int | None
    run: int
    position: int
    session_id: SessionId
    session: str
    status: Status
    result: Result
    reason: str
    detail: str
    progress: ProgressView | None = None
    adopted_from: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 1
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline, and its steps in the order of their positions."""

    pipeline: StoredPipeline
    steps: Sequence[StepRow]


# Status, result, reason, the number of steps with these, and the step if these are its elements.
Count = tuple[Status, Result, str, int, str | None]
