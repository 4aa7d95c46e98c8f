"""Start tracer: sends the spans of session starts, from the scheduler's records and from the
history.

It exists only if tracing is on. Each manager traces only its own writes, so that each span is sent
once. If a process dies before sending its spans, the spans are lost. So are the reasons for which a
session waited under a former leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.common.telemetry.spans import Span, TraceSink
from moorage.manager.lifecycle.start_spans import (
    Placement,
    ends_start,
    placement_spans,
    start_spans,
)
from moorage.manager.lifecycle.transitions import Transition
from moorage.manager.scheduling.core.results import HeldSession, Place
from moorage.manager.store import Store

# Maximum number of sessions whose holds are kept, of holds per session, and of sessions waiting to
# be read.
_SESSIONS = 20_000
_HOLDS = 16
_READ_TOGETHER = 200


class StartTracer:
    """``loop`` sends the spans. The scheduler calls ``held`` and ``placed``. ``store`` has the same
    ``tracer``, so that its sessions are part of traces."""

    def __init__(self, store: Store, tracer: TraceSink, clock: Clock) -> None:
        self._store = store
        self._tracer = tracer
        self._clock = clock
        self._holds: dict[SessionId, list[tuple[str, float]]] = {}
        self._placed: dict[SessionId, Placement] = {}
        self._ended: dict[SessionId, int] = {}
        self.loop = Loop("traces", self.run_once, interval_s=60.0, clock=clock, bursts=True)
        store.lifecycle.on_applied.append(self._applied)

    def held(self, holds: Sequence[HeldSession]) -> None:
        now = self._clock.now().timestamp()
        for hold in holds:
            known = self._holds.setdefault(hold.session_id, [])
            reason = str(hold.reason)
            if len(known) < _HOLDS and (not known or known[-1][0] != reason):
                known.append((reason, now))
        for session_id in list(self._holds)[: max(0, len(self._holds) - _SESSIONS)]:
            del self._holds[session_id]

    def placed(self, places: Sequence[Place], took_s: float) -> None:
        """Record placements. ``took_s``: time from the start of the pass until these placements
        were committed."""
        now = self._clock.now().timestamp()
        for place in places:
            agents = tuple(dict.fromkeys(kernel.agent_id for kernel in place.kernels))
            holds = tuple(self._holds.pop(place.session_id, ()))
            if len(self._placed) < _SESSIONS:
                revision = place.revision + 1
                self._placed[place.session_id] = Placement(
                    revision, now - took_s, ended=now, agents=agents, holds=holds
                )

        if places:
            self.loop.nudge()

    def _applied(self, transitions: Sequence[Transition]) -> None:
        ended = [transition for transition in transitions if ends_start(transition)]
        for transition in ended[: _SESSIONS - len(self._ended)]:
            self._ended[transition.session_id] = transition.revision + 1
            self._holds.pop(transition.session_id, None)
        if ended:
            self.loop.nudge()

    async def run_once(self) -> None:
        while ids := list(dict.fromkeys((*self._placed, *self._ended)))[:_READ_TOGETHER]:
            found = await self._store.lifecycle.traced(ids)
            placed = {id_: self._placed.pop(id_) for id_ in ids if id_ in self._placed}
            ended = {
                session_id: self._ended.pop(session_id)
                for session_id in ids
                if session_id in self._ended
            }
            spans: list[Span] = []
            for session in found:
                if (placement := placed.get(session.session_id)) is not None:
                    spans += placement_spans(session, placement, self._tracer.new_span_id)
                if (revision := ended.get(session.session_id)) is not None:
                    spans += start_spans(session, revision, self._tracer.new_span_id)

            self._tracer.record(spans)
