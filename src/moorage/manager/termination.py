"""Session termination: stops sessions on request, one or many, and preempts a plan's victims.

``manager.lifecycle`` decides each transition. A transition that loses a race is decided again from
the current state.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.views.resources import SessionView, StoppedSessions
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import preempt_session, stop_session
from moorage.manager.lifecycle.reconcile import requeue_session
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.store import Store
from moorage.manager.store.sessions.stops import SessionStop

# Each attempt after the first means that another writer has changed the session, so progress was
# made.
_MAX_ATTEMPTS = 20
# How many sessions are stopped together: reading more at once would block the event loop.
TOGETHER = 200
# How many seconds a request spends stopping sessions before it answers. The leader's loop stops the
# others.
ANSWER_S = 2.0


class StopState(Enum):
    """The progress in stopping many sessions. The stop waits while nothing can be stopped, because
    the remaining sessions need a newer manager or other writers are changing them."""

    DONE = auto()
    GOES_ON = auto()
    WAITS = auto()


class SessionTerminator:
    def __init__(self, store: Store, lost_grace_s: float) -> None:
        self._store = store
        self._lost_grace_s = lost_grace_s

    async def stop(
        self,
        scope: Scope,
        ref: str,
        *,
        reason: Reason = Reason.USER_REQUESTED,
        term: int | None = None,
        detail: str = "",
    ) -> SessionView:
        """Stop a session in any status; one that is terminating or has ended stays as it is.

        ``term``: the term of the leader that stops it; a former leader stops nothing. Raises
        ``NotFound``."""
        session_id = await self._store.sessions.find(scope, ref)
        for _ in range(_MAX_ATTEMPTS if term is None else 1):
            session = await self._store.lifecycle.snapshot(session_id)
            transition = None
            if session is not None:
                transition = stop_session(
                    session,
                    scope.actor,
                    reason=reason,
                    lost_grace_s=self._lost_grace_s,
                    detail=detail,
                )

            if transition is None or await self._store.lifecycle.apply(transition, term=term):
                break

        return await self._store.sessions.get(scope, session_id)

    async def requeue(self, scope: Scope, session_id: SessionId) -> bool:
        """Stop a batch session's program, and return the session to the queue as a new attempt,
        which starts once the former one has ended. False if it holds no resources."""
        for _ in range(_MAX_ATTEMPTS):
            session = await self._store.lifecycle.snapshot(session_id)
            if session is None:
                return False

            move = requeue_session(session, scope.actor, self._lost_grace_s)
            if move is None:
                return False
            if await self._store.lifecycle.apply(move):
                return True

        return False

    async def stop_all(
        self,
        actor: str,
        sessions: Sequence[SessionId],
        *,
        reason: Reason = Reason.USER_REQUESTED,
        term: int | None = None,
        detail: str = "",
    ) -> int:
        """Stop each session like ``stop``, in order. Returns how many sessions were stopped.

        A session that another writer changed in the meantime is left as it is."""
        stopped = 0
        for start in range(0, len(sessions), TOGETHER):
            some = sessions[start : start + TOGETHER]
            found = {
                snapshot.session_id: snapshot
                for snapshot in await self._store.lifecycle.snapshots(some)
            }
            transitions = [
                transition
                for session_id in some
                if (session := found.get(session_id)) is not None
                and (
                    transition := stop_session(
                        session,
                        actor,
                        reason=reason,
                        lost_grace_s=self._lost_grace_s,
                        detail=detail,
                    )
                )
                is not None
            ]
            stopped += await self._store.lifecycle.apply_all(transitions, term=term)

        return stopped

    async def stop_pipeline(self, scope: Scope, pipeline_id: str, clock: Clock) -> None:
        """Stop all steps of a pipeline. Returns once they are stopping, or after ``ANSWER_S``; any
        that are left stop soon afterwards."""
        await self.carry_out(
            await self._store.session_stops.ask_for_pipeline(scope, pipeline_id), clock
        )

    async def stop_user(self, scope: Scope, user: str, clock: Clock) -> StoppedSessions:
        """Like ``stop_pipeline``, stop all of a user's sessions that are not replicas, in the
        projects of the scope."""
        stop = await self._store.session_stops.ask_for_user(scope, user)
        asked = len(await self._store.session_stops.remaining(stop))
        is_done = await self.carry_out(stop, clock) is StopState.DONE
        left = 0 if is_done else len(await self._store.session_stops.remaining(stop))
        return StoppedSessions(user=user, asked_at=stop.asked_at, sessions=asked, remaining=left)

    async def carry_out(
        self, stop: SessionStop, clock: Clock, *, for_s: float = ANSWER_S, term: int | None = None
    ) -> StopState:
        """Complete a stop that was requested, or as much of it as is possible in ``for_s``
        seconds."""
        until = clock.monotonic() + for_s
        while remaining := await self._store.session_stops.remaining(stop):
            stopped = 0
            for start in range(0, len(remaining), TOGETHER):
                some = remaining[start : start + TOGETHER]
                stopped += await self.stop_all(stop.asked_by, some, reason=stop.reason, term=term)
                if clock.monotonic() >= until:
                    return StopState.GOES_ON if stopped else StopState.WAITS

            if not stopped:
                return StopState.WAITS

        await self._store.session_stops.finish(stop)
        return StopState.DONE

    async def preempt(self, victims: Sequence[Victim], term: int) -> int:
        """Requeue or end the victims under the leader's term. Returns how many sessions were
        preempted.

        A session that ended or changed in the meantime is left as it is."""
        causes = {victim.session_id: victim for victim in victims}
        sessions, _ = await self._store.lifecycle.unsettled(list(causes))
        transitions = []
        for session in sessions:
            victim = causes[session.session_id]
            transition = preempt_session(
                session, victim.how, victim.for_session, self._lost_grace_s
            )
            if transition is not None:
                transitions.append(transition)

        preempted = await self._store.lifecycle.apply_all(transitions, term=term)
        # Their capacity will soon be freed, so the planner must not preempt more sessions for it.
        agents = {
            kernel.agent_id for session in sessions for kernel in session.kernels if kernel.agent_id
        }
        self._store.notifier.notify_capacity(agents, freed=False)
        return preempted
