"""Tables on a terminal: names stay complete; other columns are cut, then dropped."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.examples import examples

from moorage.cli.output import fitted_widths, make_table, print_table

WIDTHS = st.lists(st.integers(0, 300), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("widths", "available", "fitted"),
    [
        ([4, 7, 11], 22, [4, 7, 11]),
        ([4, 7, 60], 30, [4, 7, 19]),
        ([4, 40, 60], 44, [4, 20, 20]),
        ([4, 40, 60], 45, [4, 20, 20]),
        ([7, 20, 20], 10, [7, 11, 11]),
        ([0], 10, [0]),
        ([], -5, []),
    ],
)
def test_widest_columns_are_cut_first(widths: list[int], available: int, fitted: list[int]) -> None:
    assert fitted_widths(widths, available) == fitted


@examples(200)
@given(WIDTHS, st.integers(0, 400))
def test_widths_fit_and_narrow_columns_stay(widths: list[int], available: int) -> None:
    fitted = fitted_widths(widths, available)
    assert all(kept <= width for kept, width in zip(fitted, widths, strict=True))
    assert sum(fitted) <= max(available, sum(min(width, 11) for width in widths))
    cut = [kept for kept, width in zip(fitted, widths, strict=True) if kept < width]
    assert all(
        kept == width
        for kept, width in zip(fitted, widths, strict=True)
        if width < min(cut, default=0)
    )


def test_a_long_reason_does_not_cut_a_status() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=60, force_terminal=True, no_color=True, highlight=False)
    why = "no node of the group has 8 GPUs; the largest has 4; it waits for a node that has them"
    print_table(console, ("NAME", "STATUS", "WHY"), [("a-session-of-mine", "SCHEDULED", why)])
    row = shown.getvalue().splitlines()[1].rstrip()
    assert "SCHEDULED" in row
    assert "a-session-of-mine" in row
    assert len(row) <= 60


NAME = "Qwen3-0.6B-base-of-the-vision-team"
COLUMNS = ("NAME", "USER", "TYPE", "STATUS", "PROGRESS", "AGENT", "AGE", "WHY")
ROW = (NAME, "ann", "interactive", "TERMINATING", "", "gpu-node-17", "12m", "it was preempted by a")


def lines(width: int | None, *dropped_first: str) -> list[str]:
    return make_table(COLUMNS, [ROW], width, dropped_first).plain.splitlines()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 200])
def test_a_name_is_never_cut(width: int) -> None:
    table, *rest = lines(width)[1:]
    assert table.startswith(NAME)
    assert len(table) <= max(width, len(NAME))
    assert len(rest) == (width < 120), "the columns that do not fit are named"


def test_empty_columns_are_dropped_on_a_terminal() -> None:
    assert "PROGRESS" not in "".join(lines(200))
    assert "PROGRESS" in lines(None)[0], "programs can count the columns"


def test_columns_that_do_not_fit_are_dropped_and_named() -> None:
    head, row, note = lines(60, "TYPE", "AGENT", "AGE", "USER")
    assert head.split() == ["NAME", "STATUS", "WHY"]
    assert row == f"{NAME}  TERMINATING  it was pre…"
    assert note == "not shown: USER, TYPE, AGENT, AGE (a wider terminal shows more)"
    assert lines(60)[0].split() == ["NAME", "USER", "TYPE"], "without an order, from the right"


def test_a_status_is_never_cut() -> None:
    for width in range(20, 200):
        head, row, *_ = lines(width)
        assert "STATUS" not in head or "TERMINATING" in row


def test_nothing_is_cut_in_a_pipe() -> None:
    reason = "no agent has 9 GPUs; " * 900
    shown = io.StringIO()
    print_table(Console(file=shown, width=60), ("NAME", "WHY"), [(NAME, reason)])
    assert shown.getvalue().splitlines()[1] == f"{NAME}  {reason.rstrip()}"


def test_the_name_of_a_second_column_is_kept() -> None:
    table = make_table(("SCOPE", "NAME", "UNIT"), [("project", NAME, "gpu")], 20)
    assert table.plain.splitlines()[1] == f"project  {NAME}"
