"""Strings in requests: Postgres cannot store NUL, so no pattern may allow it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.manager.api.routes import ROUTES

# Strings that would be valid for some field without the NUL.
WITH_NUL = ("\0", "a\0", "\0a", "a\0b", "/\0", "/a\0", "0@\0", "\0@0", "a/\0", "a:\0", "a\0\n")


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for part in schema.values():
            yield from _patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _patterns(part)


PATTERNS = sorted(
    {
        pattern
        for row in ROUTES
        for model in (row.body, row.query)
        if model is not None
        for pattern in _patterns(model.model_json_schema())
    }
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_pattern_admits_a_nul(pattern: str) -> None:
    assert not [text for text in WITH_NUL if re.search(pattern, text)]
