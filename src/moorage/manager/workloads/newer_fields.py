"""Fields of specifications that managers of the previous release do not know. Pure.

Those managers cannot read any session if one has such a field. The list is cleared with each
release; it can omit releases that know the schema ``leases.ROWS_APART_SINCE``.
"""

from __future__ import annotations

from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.model.status import SessionType

# Fields that are stored only if they are used. ``user_labels`` is a column.
OF_SESSIONS = frozenset(
    {
        "checkpoint",
        "idle",
        "job",
        "lease_s",
        "on_lost_agent",
        "overlap",
        "queue_timeout_s",
        "reload",
        "reuse",
        "secret_env",
        "walltime_s",
    }
)
# Without fields that have their own column, which managers of the previous release do not read.
OF_ENDPOINTS = frozenset({"overlap", "reload", "secret_env"})


def newer_fields(spec: Workload) -> list[str]:
    """The fields of this list that the specification uses."""
    known = OF_SESSIONS if isinstance(spec, SessionSpec) else OF_ENDPOINTS
    found = sorted(name for name in known if getattr(spec, name) not in (None, {}))
    return ["type"] * (isinstance(spec, SessionSpec) and spec.type is SessionType.SYSTEM) + found
