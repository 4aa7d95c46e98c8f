"""Repeated keys in JSON are refused."""

import json
from typing import Any

import pytest

from moorage.common.model.unique_keys import RepeatedKey, check_unique_keys, unique_object


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "a"),
        ('[{"x": {"mem": "1GiB", "mem": "2GiB"}}]', "mem"),
        ('{"a": 1, "\\u0061": 2}', "a"),
        ('{"": 1, "": 2}', ""),
    ],
)
def test_repeated_keys_are_named(text: str, key: str) -> None:
    with pytest.raises(RepeatedKey, match=f"the key '{key}' occurs twice in one object"):
        check_unique_keys(text.encode())
    with pytest.raises(RepeatedKey):
        json.loads(text, object_pairs_hook=unique_object)


@pytest.mark.parametrize(
    "value", [{}, [], None, {"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}, {"n": 10**4290}]
)
def test_other_documents_are_unchanged(value: Any) -> None:
    text = json.dumps(value)
    check_unique_keys(text)
    assert json.loads(text, object_pairs_hook=unique_object) == value


def test_numbers_of_any_length_are_skipped() -> None:
    check_unique_keys("9" * 10_000)
