"""JSON objects that have each key once. Parsers of JSON keep the last of two equal keys, so a
mistake in a file or request would change what it means without a word. Pure."""

from __future__ import annotations

import json
from typing import Any


class RepeatedKey(ValueError):
    """An object has a key more than once."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:100]!r} occurs twice in one object")


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members, as an ``object_pairs_hook``. Raises ``RepeatedKey``."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise RepeatedKey(key)
            seen.add(key)

    return made


def check_unique_keys(text: str | bytes) -> None:
    """Raise ``RepeatedKey`` if an object in this JSON document has a key twice."""
    # Numbers stay texts, because Python refuses to parse very long ones.
    json.loads(text, object_pairs_hook=unique_object, parse_int=str, parse_float=str)
