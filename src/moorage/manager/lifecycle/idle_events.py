"""History entries for warnings that a session is considered idle. Pure."""

from __future__ import annotations

from datetime import datetime

from moorage.common.model.status import Status
from moorage.manager.lifecycle.losses import describe_losses, with_warning
from moorage.manager.lifecycle.snapshots import SessionSnapshot
from moorage.manager.lifecycle.transitions import Event, Transition, next_status


def idle_event(session: SessionSnapshot, detail: str, now: datetime) -> Transition | None:
    """The event for a warning. ``detail`` is its text; "" means that the warning is void.

    None for a session that is not running, and for a void warning if none is recorded. The
    session's deadline is kept, and so is the part of its detail about lost kernels; otherwise their
    loss would be recorded again."""
    told = with_warning(describe_losses(session), detail)
    if session.status is not Status.RUNNING or (not detail and told == session.detail):
        return None

    event = Event.IDLE_WARNING if detail else Event.IN_USE
    left_s = None if session.deadline_at is None else (session.deadline_at - now).total_seconds()
    return Transition(
        session.session_id,
        session.status,
        revision=session.revision,
        event=event,
        new=next_status(session.status, event),
        reason=session.reason,
        detail=told,
        deadline_s=left_s,
    )
