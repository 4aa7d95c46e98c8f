"""Warnings of sessions that count as unused, as entries of their history. Pure."""

from __future__ import annotations

from datetime import datetime

from moorage.common.model.status import Status
from moorage.manager.lifecycle.losses import describe_losses, with_warning
from moorage.manager.lifecycle.snapshots import SessionSnapshot
from moorage.manager.lifecycle.transitions import Event, Transition, next_status


def idle_event(session: SessionSnapshot, detail: str, now: datetime) -> Transition | None:
    """``detail``: the warning; "": it is void. None for a session that does not run. Its deadline stays, and
    so does what its detail tells of lost kernels: otherwise their loss would be recorded again."""
    if session.status is not Status.RUNNING:
        return None
    event = Event.IDLE_WARNING if detail else Event.IN_USE
    left_s = None if session.deadline_at is None else (session.deadline_at - now).total_seconds()
    return Transition(
        session.session_id,
        session.status,
        session.revision,
        event,
        next_status(session.status, event),
        session.reason,
        with_warning(describe_losses(session), detail),
        deadline_s=left_s,
    )
