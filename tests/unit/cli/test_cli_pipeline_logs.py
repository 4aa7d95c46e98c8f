"""The steps whose logs `moorage pipelines logs` prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from moorage.cli.pipeline_logs import chosen, label
from moorage.common.model.errors import NotFound
from moorage.common.model.pipelines import StepState
from moorage.common.views.pipelines import PipelineView, StepView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def step(name: str, state: str, index: int | None = None, **more: Any) -> StepView:
    started = None if state in ("pending", "skipped") else NOW
    fields = {"name": name, "index": index, "state": state, "started_at": started}
    return StepView.model_validate({"run": 1, "session_id": "", "session": ""} | fields | more)


VIEW = PipelineView(
    id="1", name="train", project="p", user="u", created_at=NOW, created_by="u",
    state=StepState.FAILED, counts={},
    steps=[
        step("load", "succeeded"),
        step("part", "failed", 0),
        step("part", "succeeded", 1),
        step("lost", "failed", started_at=None),
        step("join", "skipped"),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("named", "failed", "expected"),
    [
        (None, False, ["load", "part[0]", "part[1]"]),
        (None, True, ["part[0]", "lost"]),
        ("part", False, ["part[0]", "part[1]"]),
        ("part[1]", False, ["part[1]"]),
        ("part", True, ["part[0]"]),
        ("join", False, []),
    ],
)
def test_chosen_steps(named: str | None, failed: bool, expected: list[str]) -> None:
    assert [label(one) for one in chosen(VIEW, named, failed=failed)] == expected


def test_unknown_step_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(NotFound, match="no step 'x'") as refused:
        chosen(VIEW, "x", failed=False)
    assert refused.value.next_step == "name one of its steps: load, part, lost, join"
