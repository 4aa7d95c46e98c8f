"""Timeline of recorded decisions: the decisions in a time range, its gaps, and verification by
replanning."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.views.decisions import SegmentView
from moorage.manager.decision_log.reader import CorruptDecisionLog, RecordedPass, SegmentReader
from moorage.manager.scheduling import plan
from moorage.manager.scheduling.placement.selector_plugin import Selector

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Gap:
    """``passes`` passes between ``begin`` and ``end`` were dropped. 0 means that another manager
    became the leader, in which case its predecessor's last second may be missing."""

    begin: int
    end: int
    passes: int


def unix_micros(at: datetime) -> int:
    """Unix microseconds."""
    return round(at.timestamp() * 1_000_000)


def decisions(
    segments: Iterable[SegmentView], begin: int, end: int
) -> Iterator[RecordedPass | Gap]:
    """Decisions and gaps from ``begin`` to ``end`` (Unix microseconds, inclusive), in order.

    ``segments``: the manager's list for that range. Raises ``CorruptDecisionLog``.
    """
    reader = SegmentReader()
    before = None
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
    """A session that is replanned differently. If the place differs, ``recorded`` and ``planned``
    are agents, which may be the same with other devices. If the session is stopped in favor of
    another, they are the sessions that it is stopped for. None means neither placed nor stopped."""

    at: int
    session_id: SessionId
    what: Literal["place", "preemption"]
    recorded: AgentId | SessionId | None
    planned: AgentId | SessionId | None


def differences(
    decision: RecordedPass, selectors: Mapping[str, Selector] | None = None
) -> list[Difference]:
    """Replan a decision. Empty if the victims and the places (sessions, kernels and devices) are
    the same."""
    again = plan(decision.snapshot, decision.policy, decision.at, selectors)
    found: list[Difference] = []
    places = [
        {place.session_id: place for place in made} for made in (decision.places, again.places)
    ]
    for session_id, was, now in _unequal(*places):
        agents = [None if place is None else place.agent_id for place in (was, now)]
        found.append(Difference(decision.at, session_id, "place", *agents))

    victims = [
        {victim.session_id: victim for victim in made} for made in (decision.victims, again.victims)
    ]
    for session_id, stopped, stops in _unequal(*victims):
        causes = [None if victim is None else victim.for_session for victim in (stopped, stops)]
        found.append(Difference(decision.at, session_id, "preemption", *causes))

    return found


def _unequal(
    was: Mapping[SessionId, _Made], now: Mapping[SessionId, _Made]
) -> Iterator[tuple[SessionId, _Made | None, _Made | None]]:
    for session_id in sorted(was.keys() | now.keys()):
        if was.get(session_id) != now.get(session_id):
            yield session_id, was.get(session_id), now.get(session_id)
