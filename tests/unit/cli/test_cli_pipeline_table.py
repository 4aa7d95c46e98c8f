"""Tables of pipelines: they fit a terminal, whatever the graph, and state what failed first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.cli import pipeline_table
from moorage.cli.output import make_table
from moorage.common.model.pipelines import After, StepState
from moorage.common.views.pipelines import FirstFailure, PipelineView, StepView

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def step(name: str, *after: str, **more: Any) -> StepView:
    fields = {"state": StepState.PENDING, "run": 1, "session_id": "", "session": f"{name}-1"}
    conditions = [After(step=one) for one in after]
    return StepView.model_validate({"name": name, "after": conditions} | fields | more)


def lines(steps: list[StepView], width: int = 80) -> list[str]:
    shown = pipeline_table.rows(steps, NOW, width)
    table = make_table(pipeline_table.COLUMNS, shown, width, pipeline_table.DROPPED_FIRST)
    return table.plain.splitlines()


def test_row_has_state_duration_exit_code_and_attempts() -> None:
    ran = {
        "state": StepState.FAILED,
        "started_at": NOW - timedelta(seconds=90),
        "ended_at": NOW - timedelta(seconds=30),
    }
    failed = step("b", "a", exit_code=3, attempt=2, reason="exit-nonzero", **ran)
    elements = [
        step("part", "b", index=index, state=StepState.SKIPPED if index else StepState.FAILED)
        for index in range(100)
    ]
    [a, b, part] = pipeline_table.rows([step("a"), failed, *elements], NOW, 80)
    assert a == ("a", "pending", "", "", "", "", "", "")
    expected = ("1m 0s", "3", "exit-nonzero", "2", "a", "2026-01-01 11:58:30")
    assert b[:2] == ("└─ b", "failed")
    assert b[3:] == expected[1:]
    assert part[:2] == ("  └─ part[0-99]", "1 failed, 99 skipped")


def test_running_step_lasts_until_now() -> None:
    running = step("a", state=StepState.RUNNING, started_at=NOW - timedelta(seconds=5))
    ended = step("a", state=StepState.SUCCEEDED, started_at=NOW, ended_at=NOW)
    durations = [pipeline_table.rows([one], NOW, 80)[0][2] for one in (running, ended)]
    assert durations[0].startswith("5")
    assert durations[1].startswith("0")


def test_long_chain_of_long_names_is_a_list_that_fits_the_width() -> None:
    names = [f"{'x' * 58}{number:02}" for number in range(30)]
    chain = [step(name, *names[max(0, i - 1) : i]) for i, name in enumerate(names)]
    shown = lines(chain)
    assert max(map(len, shown)) <= 80
    assert [line.split()[0] for line in shown[1:31]] == names


@given(sizes=st.lists(st.integers(1, 63), min_size=1, max_size=40), width=st.integers(80, 200))
def test_every_graph_fits_the_width(sizes: list[int], width: int) -> None:
    names = [f"{i:x}".ljust(size, "n")[:63] for i, size in enumerate(sizes)]
    chain = [step(name, *names[max(0, i - 1) : i]) for i, name in enumerate(names)]
    assert max(map(len, lines(chain, width))) <= width


def test_first_failure_names_its_cause_its_consequences_and_its_log() -> None:
    failure = FirstFailure(
        step="part", index=7, session_id="1", session="part-7-ab", reason="exit-nonzero",
        exit_code=3, ended_at=NOW, skipped=["join", "publish"],
    )  # fmt: skip
    view = PipelineView(
        id="1", name="train", project="p", user="u", created_at=NOW, created_by="u",
        state=StepState.FAILED, counts={}, first_failure=failure,
    )  # fmt: skip
    assert pipeline_table.failure_lines(view) == [
        "first failure: part[7] at 2026-01-01 12:00:00 UTC (exit-nonzero, exit code 3)",
        "skipped because of it: join, publish",
        "its log: moorage logs --tail 20 part-7-ab",
    ]
    assert pipeline_table.failure_lines(view.model_copy(update={"first_failure": None})) == []
