"""Drain controller: moves the sessions that are still on an agent at its drain deadline."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.lifecycle.reconcile import drain_session
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store

log = structlog.get_logger("moorage.drain")
# Number of sessions moved together. Reading more of them would block the event loop.
TOGETHER = 200


class DrainController:
    """Moves remaining sessions. The replica controller replaces replicas before the deadline.
    Sessions that start after the deadline are also moved."""

    def __init__(self, store: Store, leader: Leader, clock: Clock, lost_grace_s: float) -> None:
        self._store = store
        self._leader = leader
        self._lost_grace_s = lost_grace_s
        self.loop = Loop("drain", self.run_once, interval_s=1.0, clock=clock)

    async def run_once(self) -> None:
        if (term := self._leader.term) is None:
            return
        overdue = await self._store.agents.sessions_past_drain(self._leader.deadlines.now())
        for start in range(0, len(overdue), TOGETHER):
            await self._drain(overdue[start : start + TOGETHER], term)

    async def _drain(self, overdue: Sequence[tuple[SessionId, AgentId, str]], term: int) -> None:
        left = {session: (agent, actor) for session, agent, actor in overdue}
        facts, _ = await self._store.lifecycle.unsettled(left)
        moves = [
            m
            for fact in facts
            if (m := drain_session(fact, *left[fact.session_id], self._lost_grace_s)) is not None
        ]
        for move in moves:
            log.info("session leaves a drained agent", session_id=move.session_id, step=move.event)

        await self._store.lifecycle.apply_all(moves, term=term)
