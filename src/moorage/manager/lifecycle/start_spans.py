"""Spans of a session's start, created from its history. Pure.

The scheduler's process creates ``queue`` and ``placement`` when the session is placed; the process
that writes the last transition of the start creates the others. The agent traces the steps on the
node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from moorage.common.model.ids import SessionId
from moorage.common.model.status import BEFORE_RUNNING, TERMINAL, Status
from moorage.common.telemetry.spans import Span, SpanContext, Value, session_context
from moorage.manager.lifecycle.transitions import Event, Transition

_FAILURES = frozenset({Event.FAIL, Event.FAILED, Event.EXPIRED, Event.DEPENDENCY_FAILED})
_ENDED = TERMINAL | {Status.TERMINATING}


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """An entry in a session's history. ``at``: Unix seconds."""

    revision: int
    at: float
    event: str
    old: Status | None
    new: Status
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class TracedSession:
    """``stored``: the context under which its start is traced. ``history``: the complete history,
    by revision."""

    session_id: SessionId
    name: str
    type: str
    resource_group: str
    project: str
    stored: SpanContext
    history: tuple[HistoryRow, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """``revision``: the revision of the session's history entry, if the placement was committed.
    ``began``, ``ended``: from the start of the scheduling pass to the commit, in Unix seconds.
    ``holds``: the reasons for which the session was not placed before, with their start times."""

    revision: int
    began: float
    ended: float
    agents: tuple[str, ...]
    holds: tuple[tuple[str, float], ...] = ()


def ends_start(transition: Transition) -> bool:
    """Whether a session is up, or will no longer start."""
    old = transition.old
    new = transition.new
    if new is Status.RUNNING:
        return old is not Status.RUNNING
    return old in BEFORE_RUNNING and new in _ENDED


def placement_spans(
    session: TracedSession, placement: Placement, new_span_id: Callable[[], int]
) -> list[Span]:
    """The spans ``queue`` and ``placement``, or none if the placement was not committed."""
    history = [entry for entry in session.history if entry.revision <= placement.revision]
    if not history or (history[-1].revision, history[-1].event) != (
        placement.revision,
        Event.PLACED,
    ):
        return []

    context, _ = session_context(session.session_id, session.stored)
    queued: dict[str, Value] = {"moorage.resource_group": session.resource_group}
    if placement.holds:
        queued["moorage.hold.reason"] = placement.holds[-1][0]

    placed: dict[str, Value] = {
        "moorage.resource_group": session.resource_group,
        "moorage.agent.id": ", ".join(placement.agents),
    }
    return [
        Span(
            "queue",
            context._replace(span_id=new_span_id()),
            parent_id=context.span_id,
            start=_pending_since(history[:-1]),
            end=history[-1].at,
            attributes=queued,
            events=[(f"hold {reason}", at) for reason, at in placement.holds],
        ),
        Span(
            "placement",
            context._replace(span_id=new_span_id()),
            parent_id=context.span_id,
            start=placement.began,
            end=placement.ended,
            attributes=placed,
        ),
    ]


def start_spans(
    session: TracedSession, revision: int, new_span_id: Callable[[], int]
) -> list[Span]:
    """The spans of the start that ended with the entry ``revision``: the delivery of orders to the
    agent, and the whole start. The new start of a session that was RUNNING before is a child of its
    first start."""
    history = [entry for entry in session.history if entry.revision <= revision]
    if not history or history[-1].revision != revision:
        return []

    context, parent_id = session_context(session.session_id, session.stored)
    again = [
        n
        for n, entry in enumerate(history)
        if (entry.old, entry.new) == (Status.RUNNING, Status.PENDING)
    ]
    if again:
        history = history[again[-1] :]
        context, parent_id = context._replace(span_id=new_span_id()), context.span_id

    first = history[0]
    last = history[-1]
    made = [
        Span(
            "delivery",
            context._replace(span_id=new_span_id()),
            parent_id=context.span_id,
            start=entry.at,
            end=following.at,
            attributes={"moorage.agent.id": entry.detail.removeprefix("on ")},
            error=following.reason
            if following.new is Status.PENDING or following.new in _ENDED
            else "",
        )
        for entry, following in pairwise(history)
        if entry.new is Status.SCHEDULED
    ]
    # it was never placed, so the scheduler has not recorded its wait
    if last.old is Status.PENDING:
        own = context._replace(span_id=new_span_id())
        waited: dict[str, Value] = {"moorage.resource_group": session.resource_group}
        made.append(
            Span(
                "queue",
                own,
                parent_id=context.span_id,
                start=_pending_since(history[:-1]),
                end=last.at,
                attributes=waited,
            )
        )

    error = f"{last.reason}: {last.detail}" if last.event in _FAILURES else ""
    attributes: dict[str, Value] = {
        "moorage.session.id": session.session_id,
        "moorage.session.name": session.name,
        "moorage.session.type": session.type,
        "moorage.session.status": last.new,
        "moorage.resource_group": session.resource_group,
        "moorage.project": session.project,
        "moorage.attempts": sum(entry.new is Status.SCHEDULED for entry in history),
    }
    if last.reason:
        attributes["moorage.reason"] = last.reason

    events = [(entry.event, entry.at) for entry in history[1:]]
    name = "session restart" if again else "session start"
    made.append(
        Span(
            name,
            context,
            parent_id=parent_id,
            start=first.at,
            end=last.at,
            attributes=attributes,
            error=error,
            events=events,
        )
    )
    return made


def _pending_since(history: Sequence[HistoryRow]) -> float:
    """When the session, which is pending at the end of ``history``, became pending."""
    since = history[-1].at
    for entry in reversed(history):
        if entry.new is not Status.PENDING:
            break
        since = entry.at
    return since
