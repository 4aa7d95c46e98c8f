"""Rows as statements return them, and ids as statements accept them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def as_uuid(ref: str) -> str | None:
    """``ref`` in canonical form if it is a UUID, otherwise None."""
    try:
        return str(uuid.UUID(ref)) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", ref) else None
    except ValueError:
        return None
