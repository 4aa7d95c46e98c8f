"""The rule for names, and the name suggested in a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from moorage.common.model.base import Name, suggested_name

NAMES = TypeAdapter[str](Name)


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ("Zürich run", "Zurich-run"),
        ("ñandú", "nandu"),
        ("a  b!", "a-b"),
        ("実験1", "job-1"),
        ("эксперимент", "job-1"),
        ("-x-", "x"),
        ("", "job-1"),
    ],
)
def test_a_refusal_suggests_a_name(given: str, suggested: str) -> None:
    with pytest.raises(ValidationError, match=f"for example '{suggested}'"):
        NAMES.validate_python(given)


@given(st.text(max_size=300))
def test_every_suggestion_is_a_name(text: str) -> None:
    assert NAMES.validate_python(suggested_name(text))
