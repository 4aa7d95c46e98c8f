"""Agent monitor: the leader marks silent agents SUSPECT and LOST."""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.manager.lifecycle.silence import SilenceLimits, SilenceWatch
from moorage.manager.loops.leader import Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.agents")


class AgentMonitor:
    """``SilenceLimits`` describes the limits."""

    def __init__(
        self,
        store: Store,
        leader: Leader,
        metrics: ManagerMetrics,
        clock: Clock,
        *,
        suspect_after_s: float,
        lost_grace_s: float,
        lost_share: float = 0.5,
    ) -> None:
        self._store = store
        self._leader = leader
        self._metrics = metrics
        self._clock = clock
        interval_s = min(5.0, suspect_after_s / 4)
        pause_s = max(3 * interval_s, 5.0)
        self._limits = SilenceLimits(suspect_after_s, lost_grace_s, lost_share, pause_s)
        self._term: int | None = None
        self._watch = SilenceWatch(self._limits)
        self.loop = Loop("agents", self.run_once, interval_s=interval_s, clock=clock)

    async def run_once(self) -> None:
        term = self._leader.term
        if term is None or term != self._term:
            self._watch = SilenceWatch(self._limits)
            self._term = term
        if term is None:
            self._metrics.set_held_losses({})
            return

        sent = self._clock.monotonic()
        contacts = await self._store.agents.contacts(self._limits.suspect_after_s)
        verdict = self._watch.look(contacts, sent, self._clock.monotonic())
        for agent_id, status in await self._store.agents.mark_silent(verdict.marks, term):
            log.warning("agent is silent", agent=agent_id, status=status)

        for group, held in await self._store.agents.hold_losses(verdict.held, term):
            if held:
                log.error(
                    "too many agents of a group are silent simultaneously: none of them becomes "
                    "LOST",
                    group=group,
                    overdue=verdict.held[group],
                    share=self._limits.lost_share,
                    next_step="check the network between the managers and these agents; `moorage "
                    "agents "
                    "forget --destroyed` removes an agent that does not return",
                )
            else:
                log.info("silent agents of a group become LOST again", group=group)

        self._metrics.set_held_losses(verdict.held)
