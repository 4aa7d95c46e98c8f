"""Fields of specs that managers of the release before do not know. Pure.

They read no session beside one with such a field. The list begins anew with each release; of those
that know the schema ``leases.ROWS_APART_SINCE`` it need not say anything.
"""

from __future__ import annotations

from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.model.status import SessionType

# Those that are stored only if they are used. ``user_labels`` is a column.
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
# Without those that have a column of their own, which managers of the release before do not read.
OF_ENDPOINTS = frozenset({"overlap", "reload", "secret_env"})


def newer_fields(spec: Workload) -> list[str]:
    """Which of them it uses."""
    known = OF_SESSIONS if isinstance(spec, SessionSpec) else OF_ENDPOINTS
    found = sorted(name for name in known if getattr(spec, name) not in (None, {}))
    return ["type"] * (isinstance(spec, SessionSpec) and spec.type is SessionType.SYSTEM) + found
