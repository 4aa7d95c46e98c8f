"""Session termination: stops sessions on request and preempts victims of a plan.

``manager.lifecycle`` decides each transition. One that lost a race is decided again from the current state.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.model.reasons import Reason
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import preempt_session, stop_session
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.store import Store

# Each attempt after the first means that another writer moved the session, so there was progress.
_MAX_ATTEMPTS = 20


class SessionTerminator:
    def __init__(self, store: Store, lost_grace_s: float) -> None:
        self._store, self._lost_grace_s = store, lost_grace_s

    async def stop(
        self,
        scope: Scope,
        ref: str,
        *,
        reason: Reason = Reason.USER_REQUESTED,
        term: int | None = None,
        detail: str = "",
    ) -> SessionView:
        """Accepted in every status; a session that is terminating or has ended stays as it is. ``term``: of
        the leader that stops it; a former leader stops nothing. Raises ``NotFound``."""
        session_id = await self._store.sessions.find(scope, ref)
        for _ in range(_MAX_ATTEMPTS if term is None else 1):
            session = await self._store.lifecycle.snapshot(session_id)
            transition = None
            if session is not None:
                transition = stop_session(session, scope.actor, reason, self._lost_grace_s, detail)
            if transition is None or await self._store.lifecycle.apply(transition, term=term):
                break
        return await self._store.sessions.get(scope, session_id)

    async def preempt(self, victims: Sequence[Victim], term: int) -> int:
        """Requeue or end the victims under the leader's term. One that ended or moved meanwhile is left as it
        is. Returns how many were preempted."""
        causes = {victim.session_id: victim for victim in victims}
        sessions, _ = await self._store.lifecycle.unsettled(list(causes))
        transitions = []
        for session in sessions:
            victim = causes[session.session_id]
            transition = preempt_session(session, victim.how, victim.for_session, self._lost_grace_s)
            if transition is not None:
                transitions.append(transition)
        preempted = await self._store.lifecycle.apply_all(transitions, term=term)
        # Their capacity is about to be freed, so the planner must not preempt more sessions for it.
        agents = {kernel.agent_id for session in sessions for kernel in session.kernels if kernel.agent_id}
        self._store.notifier.notify_capacity(agents, freed=False)
        return preempted
