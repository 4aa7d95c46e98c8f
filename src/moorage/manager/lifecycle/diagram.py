"""``docs/state-machine.md``: the table of ``lifecycle.py`` as a picture and in words. Pure."""

from __future__ import annotations

from moorage.common.model.reasons import REASONS
from moorage.common.model.status import TERMINAL, Status
from moorage.manager.lifecycle.transitions import DEADLINES, TRANSITIONS


def document() -> str:
    """``docs/state-machine.md``: the table above as a picture and in words."""
    grouped: dict[tuple[Status, Status], list[str]] = {}
    for (old, event), new in TRANSITIONS.items():
        grouped.setdefault((old, new), []).append(event)
    arrows = [f"    {old} --> {new}: {', '.join(events)}" for (old, new), events in grouped.items()]
    ends = [f"    {status} --> [*]" for status in Status if status in TERMINAL]
    limits = [f"| {status} | {DEADLINES[status].words} |" for status in Status if status in DEADLINES]
    codes = [
        f"| `{reason}` | {info.text} | {info.next_step or '–'} |"
        for reason, info in REASONS.items()
        if reason
    ]
    parts = [
        "# The life of a session",
        "*Generated from `manager/lifecycle/transitions.py` by `make docs`; do not edit.*",
        "```mermaid\nstateDiagram-v2\n    [*] --> PENDING: created\n" + "\n".join([*arrows, *ends]) + "\n```",
        "A stop is accepted in every status. Kernels have the same statuses and only move forward; a retry "
        "makes a new kernel with a new id, so none runs twice. `retry`: a start failed, and another agent "
        "may do better. `requeue`: the program of a batch session with `retries` failed, or was gone when "
        "its node was back, and runs again after a pause. `preempt`: it made room for a session of higher "
        "priority, and waits to run again.",
        "## How long a session may stay\n\n| status | longest stay |\n|---|---|\n" + "\n".join(limits),
        "## Reason codes\n\n| code | it means | what to do |\n|---|---|---|\n" + "\n".join(codes),
    ]
    return "\n\n".join(parts) + "\n"
