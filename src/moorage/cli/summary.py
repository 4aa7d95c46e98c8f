"""Summaries of sessions and endpoints for people: stages, holds, failures, next steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from moorage.common.model.cluster import WITHOUT
from moorage.common.model.durations import format_duration
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.status import (
    ATTENDED,
    BEFORE_RUNNING,
    LIVE,
    RESULT_OF,
    STARTING_STEPS,
    TERMINAL,
    SessionType,
    Status,
    in_order,
)

if TYPE_CHECKING:
    from moorage.common.model.spec import Port
    from moorage.common.views.endpoints import EndpointView, ReplicaView
    from moorage.common.views.resources import HistoryEntry, SessionView

_STAGE_NAMES = {
    Status.PENDING: "queued",
    Status.SCHEDULED: "scheduled",
    Status.PREPARING: "starting",
    Status.QUEUED: "in the site's queue",
    Status.CREATING: "loading",
    Status.RUNNING: "ready",
    Status.TERMINATING: "stopping",
    Status.TERMINATED: "ended",
    Status.CANCELLED: "cancelled",
    Status.ERROR: "failed",
}

_OUTCOMES = {str(result): str(outcome) for outcome, result in RESULT_OF.items()}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a session. ``after_s``: seconds since the session was created. ``note``: the
    reason, if any."""

    name: str
    after_s: float
    note: str = ""


def stages(
    history: Sequence[HistoryEntry], kind: SessionType = SessionType.INFERENCE
) -> list[Stage]:
    """A session's stages, one per status change, oldest first."""
    found: list[Stage] = []
    start: datetime | None = None
    last: Status | None = None
    for entry in history:
        start = start or entry.at
        if entry.to_status is last:
            continue

        last = entry.to_status
        name = _STAGE_NAMES[last]
        if kind is not SessionType.INFERENCE:
            name = {"loading": "starting", "ready": "running"}.get(name, name)
        if found and found[-1].name == name:
            continue

        note = (
            f"{entry.reason}: {entry.detail}".strip(": ") if entry.reason is not Reason.NONE else ""
        )
        found.append(Stage(name, (entry.at - start).total_seconds(), note))

    return found


def hold_note(view: SessionView) -> str:
    """Return the reason why a pending session was not placed, with the next step; empty if
    unknown."""
    if view.status is not Status.PENDING or view.hold is None:
        return ""
    step = REASONS[view.hold.reason].next_step
    return "; ".join(part for part in (view.hold.text, *view.hold.refusals, step) if part)


def current_activity(view: SessionView) -> str:
    """The agent's current step in starting the session, like pulling an image; empty if unknown."""
    if view.status not in STARTING_STEPS:
        return ""
    newest = max(view.kernels, key=lambda kernel: kernel.attempt, default=None)
    return newest.detail if newest is not None and newest.status in STARTING_STEPS else ""


def leading_replica(view: EndpointView) -> ReplicaView | None:
    """The replica that represents the endpoint in progress output: the most advanced one that is
    not ready, or else the newest."""
    live = [replica for replica in view.sessions if replica.status in LIVE]
    for status in reversed(in_order(BEFORE_RUNNING)):
        if found := [replica for replica in live if replica.status is status]:
            return max(found, key=lambda replica: replica.session_id)
    return max(live or view.sessions, key=lambda replica: replica.session_id, default=None)


def failed_replica(view: EndpointView) -> ReplicaView | None:
    """The newest replica that ended in ERROR."""
    failed = [replica for replica in view.sessions if replica.status is Status.ERROR]
    return max(failed, key=lambda replica: replica.session_id, default=None)


def suspension(view: SessionView) -> str:
    """Who suspended the session; empty if nobody did."""
    found = getattr(view, "suspended", None)  # missing from a manager of the previous release
    return f"suspended by {found.by}" if found is not None else ""


def shown_status(view: SessionView) -> str:
    """The status to show. A program that has ended is shown as succeeded or failed."""
    ended = view.status == Status.TERMINATED  # lists are read untyped
    return _OUTCOMES.get(view.result, str(view.status)) if ended else str(view.status)


def is_degraded(view: SessionView) -> bool:
    """Whether it is a cluster that continues without lost kernels, which its detail names."""
    return view.status == Status.RUNNING and view.detail.startswith(WITHOUT)


def silent_agents(view: SessionView, now: datetime) -> dict[str, str]:
    """The agents of the newest attempt that do not report, with the age of their last reports."""
    silent: dict[str, str] = {}
    for kernel in view.kernels:
        since = getattr(kernel, "silent_since", None)  # missing from an earlier manager
        if since is not None and kernel.attempt == view.attempt and kernel.agent_id:
            at = since if isinstance(since, datetime) else datetime.fromisoformat(since)
            silent[kernel.agent_id] = format_duration((now - at).total_seconds())
    return silent


def silence(view: SessionView, now: datetime) -> str:
    """A warning about agents that do not report; empty if there are none."""
    silent = silent_agents(view, now)
    return ", ".join(f"{agent} has not reported for {age}" for agent, age in silent.items())


def has_ended(view: SessionView) -> bool:
    return view.status in TERMINAL


def explain_failure(reason: Reason, detail: str) -> tuple[str, str]:
    """The failure as one line, and the next step."""
    known = REASONS[reason]
    text = known.text or "it failed"
    return f"{text} ({reason})" + (f": {detail}" if detail else ""), known.next_step


def next_steps(view: SessionView) -> list[tuple[str, str]]:
    """Next steps for the user of a live session, as descriptions and commands."""
    if view.status not in LIVE or view.endpoint is not None:
        return []

    steps = []
    if view.status is Status.RUNNING and view.type in ATTENDED:
        steps.append(("work in it", f"moorage exec -it {view.name} -- sh"))
    if view.status is Status.RUNNING:
        steps += [(f"its {port.name}", _open_command(view.name, port)) for port in view.spec.ports]
    if view.kernels:
        steps.append(("its log", f"moorage logs -f {view.name}"))
    if view.status is not Status.TERMINATING:
        steps.append(("end it", f"moorage stop {view.name}"))

    return steps


def _open_command(name: str, port: Port) -> str:
    return f"moorage {'open' if port.protocol == 'http' else 'port-forward'} {name} {port.name}"
