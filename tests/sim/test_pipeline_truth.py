"""Truth about pipelines, tested with handwritten logs."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.model.pipelines import PipelineSpec

from .node import Violation
from .pipeline_truth import replay

_BATCH = {"type": "batch", "command": ["true"], "resources": {"cpu": 1}}


def log_of(*changes: tuple[str, int, str, bool]) -> list[dict[str, Any]]:
    """Two elements of ``part`` after ``load``, and their events: step, index, status, and whether
    the program has run by the time its placement is stored."""
    made = [("load", -1), ("part", 0), ("part", 1)]
    rows: list[dict[str, Any]] = [
        {"transaction": 1, "kind": "run", "step": step, "index": index, "run": 1}
        for step, index in made
    ]
    for step, index, status, has_run in changes:
        result = "SUCCESS" if status == "TERMINATED" else "UNDEFINED"
        row = {"transaction": 0, "kind": "status", "step": step, "index": index, "status": status}
        rows.append(row | {"result": result, "reason": "", "has_run": has_run})

    return [
        row | {"n": n, "pipeline_id": "p", "session_id": f"{row['step']}{row['index']}"}
        for n, row in enumerate(rows)
    ]


def judge(*changes: tuple[str, int, str, bool]) -> None:
    part = {"name": "part", "after": ["load"], "array": "0-1%1", "spec": _BATCH}
    spec = {"name": "p", "steps": [{"name": "load", "spec": _BATCH}, part]}
    replay({"p": PipelineSpec.model_validate(spec)}, log_of(*changes))


def judge_three(*changes: tuple[str, int, str, bool]) -> None:
    """Like ``judge``, with a third element of ``part``."""
    part = {"name": "part", "after": ["load"], "array": "0-2%1", "spec": _BATCH}
    spec = {"name": "p", "steps": [{"name": "load", "spec": _BATCH}, part]}
    third = {"n": 0.5, "transaction": 1, "kind": "run", "step": "part", "index": 2, "run": 1}
    log = [*log_of(*changes), third | {"pipeline_id": "p", "session_id": "part2"}]
    replay({"p": PipelineSpec.model_validate(spec)}, sorted(log, key=lambda row: float(row["n"])))


LOADED = (("load", -1, "SCHEDULED", False), ("load", -1, "TERMINATED", False))


def test_a_step_begins_after_what_it_waits_for() -> None:
    judge(*LOADED, ("part", 0, "SCHEDULED", False))
    with pytest.raises(Violation, match="success is not met"):
        judge(("part", 0, "SCHEDULED", False), *LOADED)


def test_a_step_that_has_run_does_not_begin() -> None:
    """The report of its end reaches a restored database, which only then learns that it had
    started."""
    judge(("part", 1, "SCHEDULED", True), ("part", 1, "TERMINATED", False), *LOADED)


def test_a_step_that_has_run_begins_again_only_after_what_it_waits_for() -> None:
    """Its program runs again."""
    again = (("part", 1, "SCHEDULED", True), ("part", 1, "PENDING", False))
    judge(*again, *LOADED, ("part", 1, "SCHEDULED", False))
    with pytest.raises(Violation, match="success is not met"):
        judge(*again, ("part", 1, "SCHEDULED", False))


def test_an_array_does_not_count_what_has_run() -> None:
    judge(*LOADED, ("part", 1, "SCHEDULED", True), ("part", 0, "SCHEDULED", False))
    with pytest.raises(Violation, match="run at once"):
        judge(*LOADED, ("part", 1, "SCHEDULED", False), ("part", 0, "SCHEDULED", False))


def test_an_element_that_begins_again_is_not_counted_where_a_later_one_has_run() -> None:
    """The end of the first element was lost, and the third element follows the second."""
    begun = (("part", 0, "SCHEDULED", False), ("part", 2, "SCHEDULED", False))
    judge_three(*LOADED, ("part", 1, "SCHEDULED", True), ("part", 1, "TERMINATED", False), *begun)
    with pytest.raises(Violation, match="run at once"):
        judge_three(*LOADED, *begun)
    with pytest.raises(Violation, match="run at once"):
        judge_three(
            *LOADED, ("part", 0, "SCHEDULED", True), ("part", 0, "TERMINATED", False),
            ("part", 1, "SCHEDULED", False), ("part", 2, "SCHEDULED", False),
        )  # fmt: skip
