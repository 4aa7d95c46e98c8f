"""Spans of session starts: what a history shows about queueing, placement, delivery and the whole
start."""

from __future__ import annotations

import itertools

import pytest
from tests.traces import SESSION

from moorage.common.model.ids import SessionId
from moorage.common.model.status import Status
from moorage.common.telemetry import Span, SpanContext
from moorage.common.telemetry.spans import session_context
from moorage.manager.lifecycle.start_spans import (
    HistoryRow,
    Placement,
    TracedSession,
    ends_start,
    placement_spans,
    start_spans,
)
from moorage.manager.lifecycle.transitions import TRANSITIONS, Event, Transition

REQUEST = SpanContext(9, 8, True)
STATUSES = {
    "created": Status.PENDING,
    "redirected": Status.PENDING,
    "placed": Status.SCHEDULED,
    "creating": Status.CREATING,
    "ready": Status.RUNNING,
    "retry": Status.PENDING,
    "requeue": Status.PENDING,
    "stop": Status.CANCELLED,
    "fail": Status.TERMINATING,
}


def session(*events: str) -> TracedSession:
    """An entry every second from second 1 on, with the same number as its revision."""
    entries = []
    old = None
    for number, event in enumerate(events, 1):
        new = STATUSES[event]
        detail = "on a" if event == "placed" else "why" if event == "fail" else ""
        reason = "start-failed" if event in ("fail", "retry") else ""
        entries.append(
            HistoryRow(
                number, float(number), event=event, old=old, new=new, reason=reason, detail=detail
            )
        )
        old = new

    return TracedSession(
        SessionId(SESSION),
        "job",
        type="batch",
        resource_group="default",
        project="p",
        stored=REQUEST,
        history=tuple(entries),
    )


def shown(spans: list[Span]) -> list[str]:
    return [f"{one.name} {one.start:g}-{one.end:g} {one.error}".rstrip() for one in spans]


@pytest.mark.parametrize(
    ("events", "revision", "expected"),
    [
        ("created placed creating ready", 4, ["delivery 2-3", "session start 1-4"]),
        ("created placed ready", 3, ["delivery 2-3", "session start 1-3"]),
        ("created stop", 2, ["queue 1-2", "session start 1-2"]),
        (
            "created placed retry placed creating ready",
            6,
            ["delivery 2-3 start-failed", "delivery 4-5", "session start 1-6"],
        ),
        (
            "created placed fail",
            3,
            ["delivery 2-3 start-failed", "session start 1-3 start-failed: why"],
        ),
        (
            "created placed ready requeue placed creating ready",
            7,
            ["delivery 5-6", "session restart 4-7"],
        ),
        ("created placed", 3, []),
    ],
)
def test_start(events: str, revision: int, expected: list[str]) -> None:
    found = start_spans(session(*events.split()), revision, itertools.count(100).__next__)
    assert shown(found) == expected
    if found:
        start, _ = session_context(SessionId(SESSION), REQUEST)
        whole = found[-1]
        is_first = whole.name == "session start"
        assert (whole.parent_id, whole.context == start) == (
            (8, True) if is_first else (start.span_id, False)
        )
        assert {one.parent_id for one in found[:-1]} <= {whole.context.span_id}
        assert len({one.context.span_id for one in found}) == len(found)


@pytest.mark.parametrize(
    ("events", "revision", "expected"),
    [
        ("created placed", 2, ["queue 1-2", "placement 7-8"]),
        ("created placed creating ready", 2, ["queue 1-2", "placement 7-8"]),
        ("created redirected redirected placed", 4, ["queue 1-4", "placement 7-8"]),
        ("created placed retry placed", 4, ["queue 3-4", "placement 7-8"]),
        ("created redirected", 2, []),  # something else came first, so it was not placed
    ],
)
def test_placement(events: str, revision: int, expected: list[str]) -> None:
    placement = Placement(
        revision, 7.0, ended=8.0, agents=("a", "b"), holds=(("no-capacity", 1.5), ("quota", 1.7))
    )
    found = placement_spans(session(*events.split()), placement, itertools.count(100).__next__)
    assert shown(found) == expected
    if found:
        queue, placed = found
        assert list(queue.events) == [("hold no-capacity", 1.5), ("hold quota", 1.7)]
        assert queue.attributes["moorage.hold.reason"] == "quota"
        assert placed.attributes["moorage.agent.id"] == "a, b"


def test_every_start_ends_once() -> None:
    """On every path through the table, up to the first RUNNING or an end without it."""
    for (old, event), new in TRANSITIONS.items():
        expected = {
            "ready": True,
            "ended": old not in (Status.RUNNING, Status.TERMINATING),
            "failed": old not in (Status.RUNNING, Status.TERMINATING),
            "fail": old is not Status.RUNNING,
            "stop": old is not Status.RUNNING,
            "completed": old is not Status.RUNNING,
            "expired": True,
            "dependency-failed": True,
        }.get(event, False)
        assert (
            ends_start(Transition(SessionId(SESSION), old, revision=1, event=Event(event), new=new))
            == expected
        ), (
            old,
            event,
        )
