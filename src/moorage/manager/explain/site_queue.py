"""Explanation of a site's jobs: when a queued job is expected to start, and whether the successor
of a running job comes too late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from moorage.common.model.durations import format_duration
from moorage.common.model.reasons import REASONS
from moorage.common.model.status import Status
from moorage.common.views.pending import PendingExplanation
from moorage.common.views.resources import SessionView, SiteNodesView
from moorage.manager.serving.lifetime import SHORT, holds_next, late_successor, served_s
from moorage.manager.serving.snapshots import EndpointSnapshot, StartHistory


def history_text(history: StartHistory) -> str:
    """The median and the 90th percentile of the latest jobs' waiting and loading times, in
    words."""
    waits = [format_duration(round(s)) for s in (history.queue_p50_s, history.queue_p90_s)]
    loads = [format_duration(round(s)) for s in (history.load_p50_s, history.load_p90_s)]
    return (
        f"of the latest {history.starts} jobs there, half waited at most {waits[0]}, nine of ten "
        f"{waits[1]}; "
        f"then they took {loads[0]} and {loads[1]} until they were ready"
    )


def nodes_text(nodes: Sequence[SiteNodesView]) -> str:
    """``7 of 8 nodes of gpu are in use``, or "" if nothing is known about them."""
    return ", ".join(
        f"{node.used} of {node.total} nodes of {node.name} are in use" for node in nodes
    )


def explain_queued(
    found: PendingExplanation,
    session: SessionView,
    history: StartHistory | None,
    nodes: Sequence[SiteNodesView],
    *,
    now: datetime,
) -> PendingExplanation:
    """``found`` with the expected start of a QUEUED session: the site's own estimate, or otherwise
    one from past jobs. ``nodes``: the site's nodes."""
    told = max(
        (k.expected_start for k in session.kernels if k.expected_start is not None), default=None
    )
    past = history_text(history) if history is not None else ""
    starts_at = told
    if told is not None:
        basis = ["the site's own estimate", past]
    elif history is None:
        basis = [
            "unknown: the site gives no estimate, and no job of the group has become ready yet"
        ]
    else:
        waits = (history.queue_p50_s, history.queue_p90_s)
        expected = (session.status_since + timedelta(seconds=wait_s) for wait_s in waits)
        starts_at = next((at for at in expected if at >= now), None)
        basis = (
            [past]
            if starts_at is not None
            else ["unknown: it has already waited longer than most", past]
        )

    text = "; ".join(part for part in (*basis, nodes_text(nodes)) if part)
    # For example, the site's own reason, or that the response to a submission was lost.
    said = next((k.detail for k in session.kernels if k.detail and k.detail not in found.text), "")
    why = "; ".join(part for part in (found.text, said) if part)
    return found.model_copy(update={"text": why, "expected_start": starts_at, "basis": text})


def explain_late(session: SessionView, endpoint: EndpointSnapshot, now: datetime) -> str:
    """Explain that the walltime of this replica ends before enough others are expected, or return
    "" if it does not."""
    late = late_successor(endpoint, now)
    if session.status is not Status.RUNNING or late is None or late[0].session_id != session.id:
        return ""
    if reason := holds_next(endpoint):
        held = f"its successor is held: {REASONS[reason].text}"
        return f"its walltime ends at {late[0].ends_at:%Y-%m-%d %H:%M} UTC, and {held}"

    expected = f"for {late[1]:%Y-%m-%d %H:%M} UTC" if late[1] is not None else "at an unknown time"
    return (
        f"its walltime ends at {late[0].ends_at:%Y-%m-%d %H:%M} UTC, and its successor is "
        f"expected {expected}"
    )


def explain_short(session: SessionView, endpoint: EndpointSnapshot) -> str:
    """Explain that much of the walltime of this replica is spent on loading its model, or return ""
    if it is not."""
    history = endpoint.starts.get(session.resource_group)
    found = next((r for r in endpoint.replicas if r.session_id == session.id), None)
    if (
        session.status is not Status.RUNNING
        or history is None
        or found is None
        or found.walltime_s is None
    ):
        return ""

    serves_s = served_s(found, history.load_p90_s)
    if serves_s >= SHORT * found.walltime_s:
        return ""

    walltime, load = (format_duration(round(s)) for s in (found.walltime_s, history.load_p90_s))
    serves = (
        f"serves for {format_duration(round(serves_s))} of it"
        if serves_s > 0
        else "may not serve at all"
    )
    return (
        f"its walltime of {walltime} is short: its model takes {load} to load, so a job {serves}; "
        "a longer hpc.walltime_s needs fewer jobs"
    )
