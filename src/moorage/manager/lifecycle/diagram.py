"""Reference page about session states: transitions, deadlines and reason codes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.common.model.reasons import REASONS
from moorage.common.model.status import TERMINAL, Status
from moorage.manager.lifecycle.deadlines import DEADLINES
from moorage.manager.lifecycle.transitions import TRANSITIONS

_INTRODUCTION = """\
A session that has not ended accepts a stop in every status. Kernels use the same statuses and only move
forward. Every new attempt creates a new kernel with a new id, so no kernel runs twice. Three events return a
session to the queue:

* `retry`: a start failed, and another agent may succeed.
* `requeue`: the program of a batch session with `retries` failed, or disappeared when its node restarted. It
  runs again after a backoff.
* `preempt`: the session released its resources to a session of higher priority, or its agent was drained. It
  waits to run again."""


def document() -> Iterator[str]:
    """Render the page as Markdown lines, with the state diagram in Mermaid."""
    grouped: dict[tuple[Status, Status], list[str]] = {}
    for (old, event), new in TRANSITIONS.items():
        grouped.setdefault((old, new), []).append(event)

    arrows = [f"    {old} --> {new}: {', '.join(events)}" for (old, new), events in grouped.items()]
    ends = [f"    {status} --> [*]" for status in Status if status in TERMINAL]
    limits = [
        f"| {status} | {DEADLINES[status].description} |"
        for status in Status
        if status in DEADLINES
    ]
    codes = [
        f"| `{reason}` | {info.text} | {info.next_step or '–'} |"
        for reason, info in REASONS.items()
        if reason
    ]
    yield "# Session states\n"
    yield "```mermaid\nstateDiagram-v2\n    [*] --> PENDING: created"
    yield from (*arrows, *ends, "```\n")
    yield _INTRODUCTION
    yield "\n## Deadlines\n\nThe longest time that a session stays in each status.\n"
    yield from ("| status | limit |", "|---|---|", *limits)
    yield "\n## Reason codes\n"
    yield from ("| code | meaning | next step |", "|---|---|---|", *codes)
