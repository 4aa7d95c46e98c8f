"""The growth measurement of `make soak`: a leak is found, and a full cache is not reported as
one."""

from __future__ import annotations

import pytest
from tests.examples import FACTOR
from tests.growth import CODE, Growth

COUNT = 200


def run(kept: list[bytearray], most: int, *, files: str = "*/test_growth.py") -> Growth:
    """Each example adds 1,000 bytes, and the last ``most`` additions are kept."""
    with Growth(COUNT, allowed=20_000, files=files, always=True) as growth:
        for _ in range(COUNT * FACTOR):
            kept.append(bytearray(1000))
            del kept[:-most]
            growth.note_example()
    return growth


def test_a_leak_is_found() -> None:
    with pytest.raises(
        AssertionError, match=r"bytes more than after 2 tenths(.|\n)*test_growth\.py"
    ):
        run([], COUNT * FACTOR)


def test_a_cache_that_is_full_is_none() -> None:
    assert 10_000 < run([], 10).sizes[-1] < 20_000


def test_what_others_keep_does_not_count() -> None:
    assert run([], COUNT * FACTOR, files=CODE).sizes[-1] < 1000


def test_too_few_examples_tell_nothing() -> None:
    with (
        pytest.raises(AssertionError, match="too few"),
        Growth(COUNT, allowed=0, always=True) as growth,
    ):
        growth.note_example()


def test_a_failure_of_an_example_is_told_first() -> None:
    with pytest.raises(ZeroDivisionError), Growth(COUNT, allowed=0, always=True):
        _ = 1 / 0
