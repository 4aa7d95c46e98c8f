"""Parsing and formatting of resource slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import (
    format_amount,
    format_slots,
    parse_amount,
    parse_size,
    parse_slots,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (1_048_576, 1_048_576),
        (1_500_000_000.0, 1_500_000_000),
        ("1048577", 1_048_577),
        ("0.0", 0),
        ("17b", 17),
        ("1.1 GiB", 1_181_116_006),
        ("1k", 1000),
        ("1KiB", 1024),
        ("512MiB", 512 * 1024**2),
        ("2g", 2 * 1000**3),
        ("1.5 GB", 1_500_000_000),
        (" 1 tib ", 1024**4),
    ],
)
def test_sizes(text: str | float, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "-1", -1, "1 PiB", "1e3", "1..5g", "0x10", True, "∞", "9" * 40]
)
def test_invalid_sizes_are_refused(text: str | int) -> None:
    with pytest.raises(InvalidInput, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", [16, "16", 1.5, "1024", "1048575", "2000000.5", 0.5])
def test_small_sizes_without_a_unit_are_refused(text: str | float) -> None:
    expected = rf"{text}'? has no unit, and would be {text} bytes \(write {text}GiB or {text}MiB"
    with pytest.raises(InvalidInput, match=expected):
        parse_size(text)


@pytest.mark.parametrize(
    ("slot", "value", "amount"),
    [
        ("cpu", 2, 2000),
        ("cpu", "0.5", 500),
        ("cpu", 0.001, 1),
        ("mem", "1GiB", 1024**3),
        ("mem", "7B", 7),
        ("cuda.device", 1, 1),
        ("cuda.device", "8", 8),
        ("cuda.shares", 0.25, 250),
        ("tpu.device", 4, 4),
    ],
)
def test_amounts(slot: str, value: str | float, amount: int) -> None:
    assert parse_amount(slot, value) == amount


@pytest.mark.parametrize(
    ("slot", "value", "message"),
    [
        ("gpu", 1, "unknown slot 'gpu'"),
        ("cuda", 1, "unknown slot"),
        ("CUDA.device", 1, "unknown slot"),
        ("cpu", -1, r"cpu = -1 is not allowed \(cpu takes a number with at most three decimals"),
        ("cpu", "0.0001", "at most three decimals"),
        ("cpu", "NaN", "is not allowed"),
        ("cpu", float("inf"), "is not allowed"),
        ("cpu", "two", "is not allowed"),
        ("cuda.device", 0.5, "cuda.device takes a whole number"),
        ("mem", "much", "is not a size"),
        ("mem", 16, r"16 has no unit"),
        ("mem", 1.5, r"1.5 has no unit"),
    ],
)
def test_refused_amounts_name_the_allowed_values(
    slot: str, value: str | float, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_amount(slot, value)


def test_parse_slots_drops_zeros_and_sorts() -> None:
    parsed = parse_slots({"mem": "1KiB", "cpu": 1, "cuda.device": 0})
    assert list(parsed.items()) == [("cpu", 1000), ("mem", 1024)]


@pytest.mark.parametrize(
    ("slot", "amount", "shown"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 2000, "2"),
        ("cpu", 10, "0.01"),
        ("mem", 4 * 1024**3, "4GiB"),
        ("mem", 100, "100B"),
        ("cuda.device", 3, "3"),
        ("cuda.shares", 250, "0.25"),
    ],
)
def test_format_amount(slot: str, amount: int, shown: str) -> None:
    assert format_amount(slot, amount) == shown


def test_format_empty_slots() -> None:
    assert format_slots({}) == "nothing"
    assert format_slots({"mem": 1024, "cpu": 1000}) == "cpu=1 mem=1KiB"


@given(st.sampled_from(["cpu", "cuda.device", "cuda.shares"]), st.integers(0, 10**9))
def test_parse_inverts_format(slot: str, amount: int) -> None:
    assert parse_amount(slot, format_amount(slot, amount)) == amount
