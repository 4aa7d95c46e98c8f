"""Form of Moorage's credentials, by which they are found in places where they do not belong.
Pure."""

from __future__ import annotations

import re

# API keys, join tokens and access tokens anywhere in a text.
_SECRET = re.compile(r"\bmg[a-z]?-[A-Za-z0-9_-]{20,}")


def has_secret(text: str) -> bool:
    """Return whether ``text`` contains anything that looks like a credential of Moorage, valid or
    not."""
    return "mg" in text and _SECRET.search(text) is not None
