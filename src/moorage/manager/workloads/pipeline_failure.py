"""The failure that a pipeline's user looks at first, and the steps that it skipped. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from moorage.common.model.pipelines import StepState
from moorage.common.views.pipelines import FirstFailure, StepView

_NEVER = datetime.max.replace(tzinfo=UTC)


def first_failure(steps: Sequence[StepView]) -> FirstFailure | None:
    """The failed step that ended first. ``steps``: each after those that it waits for, so that of
    steps that ended at the same time, the cause comes before its consequences."""
    failed = [step for step in steps if step.state is StepState.FAILED]
    if not failed:
        return None

    first = min(failed, key=lambda step: step.ended_at or _NEVER)
    return FirstFailure(
        step=first.name,
        index=first.index,
        session_id=first.session_id,
        session=first.session,
        reason=first.reason,
        detail=first.detail,
        exit_code=first.exit_code,
        ended_at=first.ended_at,
        skipped=_skipped_after(steps, first.name),
    )


def _skipped_after(steps: Sequence[StepView], cause: str) -> list[str]:
    """The skipped steps that waited for the success of ``cause``, or for a step skipped after
    it."""
    found: dict[str, None] = {}
    for step in steps:
        if step.state is StepState.SKIPPED and any(
            after.step in found or (after.step == cause and after.on == "success")
            for after in step.after
            if after.on != "any"
        ):
            found[step.name] = None

    return list(found)
