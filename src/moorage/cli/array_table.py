"""Arrays as rows of a table: one row for all elements, with their counts by state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.cli.output import format_age

if TYPE_CHECKING:
    from datetime import datetime

    from moorage.common.views.pipelines import PipelineView

ARRAY_COLUMNS = ("ARRAY", "ELEMENTS", "USER", "PROJECT", "AGE")
# The order in which counts are shown: what runs, what needs attention, and the rest.
STATES = ("running", "failed", "stopped", "pending", "skipped", "succeeded")


def counts_text(counts: Mapping[Any, int]) -> str:
    """Elements by state, such as ``12 running, 3 failed, 85 pending``."""
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state))


def array_label(pipeline: str, step: str, array: str) -> str:
    """The name of an array in lists: ``sweep[0-99%10]``, or ``train/part[0-99%10]``."""
    return f"{pipeline if step == pipeline else f'{pipeline}/{step}'}[{array}]"


def array_rows(found: Sequence[PipelineView], now: datetime) -> list[list[str]]:
    """One row for each array of these pipelines."""
    return [
        [
            array_label(view.name, array.step, array.array),
            counts_text(array.counts),
            view.user,
            view.project,
            format_age(now, view.created_at),
        ]
        for view in found
        for array in view.arrays
    ]
