"""Tables on a terminal: the widest columns are truncated first."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.examples import examples

from moorage.cli.output import fitted_widths, print_table

WIDTHS = st.lists(st.integers(0, 300), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("widths", "available", "fitted"),
    [
        ([4, 7, 11], 22, [4, 7, 11]),
        ([4, 7, 60], 30, [4, 7, 19]),
        ([4, 40, 60], 44, [4, 20, 20]),
        ([4, 40, 60], 45, [4, 20, 20]),
        ([7, 20, 20], 10, [7, 8, 8]),
        ([0], 10, [0]),
    ],
)
def test_widest_columns_are_cut_first(widths: list[int], available: int, fitted: list[int]) -> None:
    assert fitted_widths(widths, available) == fitted


@examples(200)
@given(WIDTHS, st.integers(0, 400))
def test_widths_fit_and_narrow_columns_stay(widths: list[int], available: int) -> None:
    fitted = fitted_widths(widths, available)
    assert all(kept <= width for kept, width in zip(fitted, widths, strict=True))
    assert sum(fitted) <= max(available, sum(min(width, 8) for width in widths))
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
