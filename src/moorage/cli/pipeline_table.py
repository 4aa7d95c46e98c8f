"""The steps of a pipeline as a table, and its first failure, for ``moorage pipelines``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from moorage.cli import output
from moorage.common.model.durations import format_duration
from moorage.common.model.pipelines import After, StepState

if TYPE_CHECKING:
    from datetime import datetime

    from moorage.common.views.pipelines import FirstFailure, PipelineView, StepView

COLUMNS = ("STEP", "STATE", "DURATION", "EXIT", "NOTE", "ATTEMPTS", "AFTER", "STARTED")
# The order in which a narrow terminal drops columns.
DROPPED_FIRST = ("STARTED", "ATTEMPTS", "AFTER")


def rows(
    steps: Sequence[StepView], now: datetime, width: int, *, elements: bool = False
) -> list[tuple[str, ...]]:
    """One row per step; an array is one row with its counts by state, or with ``elements`` one row
    per element.

    Steps are indented by the length of the longest path to them, unless this takes more than half
    of ``width``: then the column AFTER alone shows the graph."""
    if elements:
        return [(_name([step]), *_cells([step], now)) for step in steps]

    depths: dict[str, int] = {}
    groups = [list(group) for _, group in groupby(steps, key=lambda step: step.name)]
    for first, *_ in groups:
        depths[first.name] = 1 + max(
            (depths.get(after.step, -1) for after in first.after), default=-1
        )

    labels = [f"{_branch(depths[group[0].name])}{_name(group)}" for group in groups]
    if max(map(len, labels), default=0) > width // 2:
        labels = [_name(group) for group in groups]

    return [(label, *_cells(group, now)) for label, group in zip(labels, groups, strict=True)]


def failure_lines(view: PipelineView) -> list[str]:
    """What failed first, why, what was skipped because of it, and how to see its log."""
    failure = view.first_failure
    if failure is None:
        return []

    exited = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
    at = "" if failure.ended_at is None else f" at {failure.ended_at:%Y-%m-%d %H:%M:%S} UTC"
    detail = f": {failure.detail}" if failure.detail else ""
    lines = [f"first failure: {step_name(failure)}{at} ({failure.reason}{exited}){detail}"]
    if failure.skipped:
        lines.append(f"skipped because of it: {', '.join(failure.skipped)}")

    return [*lines, f"its log: moorage logs --tail 20 {failure.session}"]


def step_name(failure: FirstFailure) -> str:
    return failure.step if failure.index is None else f"{failure.step}[{failure.index}]"


def _branch(depth: int) -> str:
    return f"{'  ' * (depth - 1)}└─ " if depth else ""


def _name(elements: Sequence[StepView]) -> str:
    first = elements[0]
    if first.index is None:
        return first.name
    last = elements[-1].index
    return f"{first.name}[{first.index}{f'-{last}' if len(elements) > 1 else ''}]"


def _cells(elements: Sequence[StepView], now: datetime) -> tuple[str, ...]:
    """The cells after the name, in the order of ``COLUMNS``."""
    first = elements[0]
    single = first.index is None or len(elements) == 1
    starts = min((step.started_at for step in elements if step.started_at), default=None)
    ends = [step.ended_at for step in elements]
    end = max((at for at in ends if at is not None), default=now) if None not in ends else now
    took = "" if starts is None else format_duration(max(0.0, (end - starts).total_seconds()))

    return (
        _state(elements),
        took,
        str(first.exit_code) if single and first.exit_code is not None else "",
        _note(first) if single else "",
        str(first.attempt) if single and first.started_at else "",
        ", ".join(map(_condition, first.after)),
        "" if starts is None else f"{starts:%Y-%m-%d %H:%M:%S}",
    )


def _state(elements: Sequence[StepView]) -> str:
    if elements[0].index is None or len(elements) == 1:
        return str(elements[0].state)
    states = [step.state for step in elements]
    return ", ".join(f"{states.count(state)} {state}" for state in StepState if state in states)


def _note(step: StepView) -> str:
    failed = step.state in (StepState.FAILED, StepState.SKIPPED)
    shown = output.progress_text(step.progress) if step.state is StepState.RUNNING else ""
    parts = (
        step.reason if failed else shown,
        f"run {step.run}" if step.run > 1 else "",
        "reused" if step.adopted_from else "",
    )
    return ", ".join(part for part in parts if part)


def _condition(after: After) -> str:
    if after.on == "success" and not after.of_any:
        return after.step
    return f"{after.step} ({after.on}{f' of {after.of}' if after.of else ''})"
