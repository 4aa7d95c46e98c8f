"""Reuse of equal batch sessions: which sessions qualify, and which fields make requests equal.
Pure.

Two requests are equal if they would run the same program with the same input: by the fields in
``MEANING``, within one project. When, where and how often a program runs makes no difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

# never: always run. success: reuse the result of an equal session that succeeded. live: share the
# run of an equal session that has not ended. both: either.
ReusePolicy = Literal["never", "success", "live", "both"]

MEANING = frozenset(
    {
        "type",
        "engine",
        "model",
        "args",
        "command",
        "env",
        "secret_env",
        "runtime",
        "image",
        "resources",
        "arch",
        "labels",
        "cluster",
        "ports",
        "depends_on",
        "job",
    }
)


def request_hash(spec: Mapping[str, Any], project: str) -> str:
    """SHA-256 of a session's meaning in ``project``.

    ``spec``: the specification as JSON, with defaults. The order of keys makes no difference."""
    meaning = {name: spec.get(name) for name in sorted(MEANING)}
    canonical = json.dumps(
        {"project": project, "spec": meaning}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()
