"""Idle controller: warns about unused interactive sessions, and later stops them.

It counts only time that it has itself observed while leading, so neither a gap nor a clock jump
ends a session.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.durations import format_duration
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.idle_events import idle_event
from moorage.manager.lifecycle.losses import IDLE
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store
from moorage.manager.store.sessions.idle import IdleSession, MeanUse
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.idle import (
    IdleSettings,
    IdleStep,
    Judgment,
    Look,
    judge,
    needed_minutes,
    percent_used,
    settings_of,
)

log = structlog.get_logger("moorage.idle")
INTERVAL_S = 5.0
# A longer interval between two observations counts as this much, because nothing was observed in
# between.
LONGEST_S = 3 * INTERVAL_S


class IdleController:
    def __init__(
        self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock
    ) -> None:
        self._store = store
        self._leader = leader
        self._terminator = terminator
        self._clock = clock
        self._term: int | None = None
        self._looked_at = 0.0
        self.loop = Loop("idle", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        term = self._leader.term
        now = self._clock.monotonic()
        elapsed_s = min(now - self._looked_at, LONGEST_S) if term == self._term else 0.0
        self._term = term
        self._looked_at = now
        if term is None:
            return

        sessions = await self._store.idle.sessions()
        rules = {
            session.session_id: settings_of(session.policy, session.project, session.choice)
            for session in sessions
        }
        used = await self._store.idle.use(_windows(rules))
        seen = [
            (session, _judge(session, elapsed_s, what, used.get(session.session_id)))
            for session in sessions
            if (what := rules[session.session_id]).criteria
        ]
        if not seen:
            return

        hold = await self._store.idle.put(seen, term)
        for session, made in seen:
            if session.session_id in hold and made.step is not IdleStep.NONE:
                await self._act(session, made, term)

    async def _act(self, session: IdleSession, made: Judgment, term: int) -> None:
        log.info("idle session", id=session.session_id, step=made.step, criterion=made.criterion)
        if made.step is IdleStep.END:
            await self._terminator.stop(
                Scope.system("idle"),
                session.session_id,
                reason=Reason.IDLE_TIMEOUT,
                detail=f"criterion {made.criterion}",
                term=term,
            )
            return

        detail = ""
        if made.step is IdleStep.WARN:
            detail = (
                f"{IDLE}ends in {format_duration(made.ends_in_s or 0.0)} by criterion "
                f"{made.criterion}"
            )

        facts, now = await self._store.lifecycle.unsettled([session.session_id])
        events = [event for fact in facts if (event := idle_event(fact, detail, now)) is not None]
        await self._store.lifecycle.apply_all(events, term=term)


def _windows(rules: Mapping[SessionId, IdleSettings]) -> dict[SessionId, tuple[float, int]]:
    return {
        session_id: (rule.window_s, needed_minutes(rule.window_s))
        for session_id, settings in rules.items()
        if (rule := settings.utilization) is not None
    }


def _judge(
    session: IdleSession, elapsed_s: float, settings: IdleSettings, use: MeanUse | None
) -> Judgment:
    """Assess a session. A session whose agents are silent is not observed."""
    used = {} if use is None else percent_used(session.slots, use.cpu, use.memory, use.gpu)
    look = Look(
        elapsed_s if session.reached else 0.0,
        session.sightings,
        traffic_known=session.traffic_known,
        used=used,
        told=session.told,
    )
    return judge(session.state, look, settings)
