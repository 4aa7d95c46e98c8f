"""Parsing and formatting of durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604_800), ("1d2h3m4s5ms", 93_784.005),
        ("0s", 0), ("0.5s", 0.5), ("1.5h", 5400), ("250ms", 0.25), (" 5m ", 300),
    ],
)  # fmt: skip
def test_parse(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", " ", "90", "soon", "-5m", "5 m", "30m1h", "1h1h", "1w", "1e3s", ".5s", "nan", "inf", "ms"],
)
def test_other_text_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write it like 90s, 10m, 1h30m or 7d"):
        parse_duration(text)


def test_durations_over_ten_years_are_refused() -> None:
    with pytest.raises(ValueError, match="longer than ten years"):
        parse_duration("99999d")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.00s"),
        (0.314, "0.31s"),
        (42.9, "42s"),
        (192, "3m12s"),
        (18_120, "5h02m"),
        (277_200, "3d5h"),
    ],
)
def test_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(0, 300_000_000))
def test_formatted_durations_can_be_parsed(seconds: float) -> None:
    """Rounded down to the two largest units."""
    parsed = parse_duration(format_duration(seconds))
    assert seconds - 3600 <= parsed <= seconds + 0.01
