"""Timeline of recorded decisions: the decisions of a time range, its gaps, and verification by replanning."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.views.decisions import SegmentView
from moorage.manager.decision_log.reader import CorruptDecisionLog, Decision, Reader
from moorage.manager.scheduling import plan
from moorage.manager.scheduling.placement.selector_plugin import Selector


@dataclass(frozen=True, slots=True)
class Gap:
    """``passes`` passes between ``begin`` and ``end`` were dropped. 0: another manager became the leader, and
    the last second of its predecessor may be missing."""

    begin: int
    end: int
    passes: int


def unix_micros(at: datetime) -> int:
    """Unix microseconds."""
    return round(at.timestamp() * 1_000_000)


def decisions(segments: Iterable[SegmentView], begin: int, end: int) -> Iterator[Decision | Gap]:
    """Decisions and gaps from ``begin`` to ``end`` (unix microseconds, inclusive), in order.

    ``segments``: as the manager lists them for that range. Raises ``CorruptDecisionLog``.
    """
    reader, before = Reader(), None
    for segment in segments:
        if before is not None and (segment.dropped or segment.term != before.term):
            gap = Gap(unix_micros(before.to_at), unix_micros(segment.from_at), segment.dropped)
            if gap.end >= begin and gap.begin <= end:
                yield gap
        before = segment
        for decision in reader.read(_body(segment)):
            if begin <= decision.at <= end:
                yield decision


def _body(segment: SegmentView) -> bytes:
    try:
        return b64decode(segment.body, validate=True)
    except NotBase64 as error:
        raise CorruptDecisionLog(
            f"the segment of {segment.from_at.isoformat()} is not base64: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class Difference:
    """A session that replanning places on another agent, or with other devices. None: it is not placed."""

    at: int
    session_id: SessionId
    recorded: AgentId | None
    planned: AgentId | None


def differences(decision: Decision, selectors: Mapping[str, Selector] | None = None) -> list[Difference]:
    """Replan a decision. Empty if the places are equal, in sessions, kernels and devices."""
    again = plan(decision.snapshot, decision.policy, decision.at, selectors)
    was, now = ({place.session_id: place for place in places} for places in (decision.places, again.places))
    return [
        Difference(
            decision.at,
            session_id,
            was[session_id].agent_id if session_id in was else None,
            now[session_id].agent_id if session_id in now else None,
        )
        for session_id in sorted(was.keys() | now.keys())
        if was.get(session_id) != now.get(session_id)
    ]
