"""Summaries of recorded passes, without their inputs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from moorage.common.views.decisions import PassPlace, PassVictim, PassView, SegmentView
from moorage.manager.decision_log.reader import RecordedPass
from moorage.manager.decision_log.timeline import Gap, decisions, unix_micros

Outcome = Literal["placed", "waited", "preempted"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def summaries(
    segments: Sequence[SegmentView], begin: int, end: int, *, session: str = ""
) -> list[PassView]:
    """The passes from ``begin`` to ``end`` (Unix microseconds, inclusive), newest first.
    ``session``: only the passes in which the session with this id waited, was placed or was
    preempted. Raises ``CorruptDecisionLog``."""
    found: list[PassView] = []
    # A gap before the first segment: the recorder writes a full one after each loss.
    missing = segments[0].dropped if segments and unix_micros(segments[0].from_at) >= begin else 0
    for entry in decisions(segments, begin, end):
        if isinstance(entry, Gap):
            missing += entry.passes
            continue

        outcome = _outcome(entry, session) if session else None
        if outcome is not None or not session:
            found.append(_view(entry, outcome, missing))
            missing = 0

    return found[::-1]


def _outcome(entry: RecordedPass, session: str) -> Outcome | None:
    """What the pass did with a session; None if it was neither pending nor preempted."""
    if any(place.session_id == session for place in entry.places):
        return "placed"
    if any(victim.session_id == session for victim in entry.victims):
        return "preempted"
    return (
        "waited"
        if any(pending.session_id == session for pending in entry.snapshot.pending)
        else None
    )


def _view(entry: RecordedPass, outcome: Outcome | None, missing: int) -> PassView:
    return PassView(
        at=_EPOCH + timedelta(microseconds=entry.at),
        duration_ms=entry.took / 1000,
        pending=len(entry.snapshot.pending),
        placed=entry.placed,
        idle_passes_before=entry.idle_passes,
        not_recorded_before=missing,
        held=dict(entry.held),
        places=[
            PassPlace(
                session_id=place.session_id, agents=[kernel.agent_id for kernel in place.kernels]
            )
            for place in entry.places
        ],
        preempted=[
            PassVictim(session_id=victim.session_id, for_session=victim.for_session)
            for victim in entry.victims
        ],
        session=outcome,
    )
