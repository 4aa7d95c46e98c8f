"""Scheduler loop: snapshot, plan and commit, for each resource group with pending sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.manager.loops.decision_recorder import DecisionRecorder
from moorage.manager.loops.leader import Leader
from moorage.manager.loops.start_tracer import StartTracer
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import Pending, Plan, Policy, Snapshot
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from moorage.manager.selector_plugins import SelectorPlugins
from moorage.manager.store import Store, Topic
from moorage.manager.termination import SessionTerminator

log = structlog.get_logger("moorage.scheduler")
# A plan that examines this many sessions, such as a leader's first plan, is computed in a thread,
# because it would block the event loop for tens of milliseconds.
IN_THREAD = 5_000


class Scheduler:
    """Runs on ``Topic.SCHEDULE``, and at least every 2 s: one pass per group with pending sessions.

    ``recorder`` is called after each pass. ``tracer``: None while tracing is off.
    """

    def __init__(
        self,
        store: Store,
        leader: Leader,
        terminator: SessionTerminator,
        metrics: ManagerMetrics,
        *,
        clock: Clock,
        recorder: DecisionRecorder | None = None,
        tracer: StartTracer | None = None,
    ) -> None:
        self._store = store
        self._leader = leader
        self._metrics = metrics
        self._clock = clock
        self._terminator = terminator
        self._recorder = recorder
        self._tracer = tracer
        self._selectors = SelectorPlugins()
        self._planners = PlannerCache()
        self._term: int | None = None
        self.loop = Loop("scheduler", self.run_once, interval_s=2.0, clock=clock, bursts=True)
        store.notifier.on(Topic.SCHEDULE, self.loop.nudge)

    async def run_once(self) -> None:
        # Every change to the cluster wakes this loop in every manager, but only the leader has
        # work.
        if (term := self._leader.term) not in (None, self._term):
            # Another leader may have written other holds since this manager last led.
            self._planners = PlannerCache()
            self._term = term
            self._store.scheduling.forget_holds()

        groups = [] if term is None else await self._store.groups.with_pending()
        for group, policy in groups:
            term = self._leader.term
            if term is None:
                return

            written = False
            try:
                await self._pass(group, policy, term)
                written = True
            finally:
                if not written:
                    # The planner would not repeat holds that have not been written.
                    self._planners.forget(group)

    async def _pass(self, group: str, policy: Policy, term: int) -> None:
        started = self._clock.monotonic()
        at = self._leader.deadlines.now()
        snapshot = await self._store.scheduling.snapshot(group, policy, now=at)
        made, now = await self._plan(snapshot, policy)
        if any(
            hold.capacity for hold in made.holds
        ) and not self._store.scheduling.includes_running(group):
            snapshot = await self._store.scheduling.snapshot(
                group, policy, with_running=True, now=at
            )
            self._planners.forget(group)  # plan from scratch with the current knowledge
            made, now = await self._plan(snapshot, policy)

        placed = await self._store.scheduling.place(made.places, term)
        if self._tracer is not None:
            self._tracer.placed(made.places, self._clock.monotonic() - started)
            self._tracer.held(made.holds)
        if made.victims:
            stopped = await self._terminator.preempt(made.victims, term)
            log.info("sessions preempted", group=group, planned=len(made.victims), stopped=stopped)

        await self._store.groups.save_cursors(group, made.cursors, term)
        await self._store.scheduling.record_holds(
            snapshot, made.holds, policy.num_retries_to_skip, made.bypasses, term=term
        )
        if placed == len(made.places):  # the store does not report which sessions were placed
            self._metrics.capacity.sessions_placed(
                group, waits_s(self._planners.pending(group), made, now)
            )

        took = self._clock.monotonic() - started
        self._metrics.pass_finished(took, placed, len(snapshot.pending) - placed)
        if self._recorder is not None:
            took_us = round(took * 1_000_000)
            self._recorder.note(
                snapshot, policy, made, at=now, took=took_us, placed=placed, term=term
            )

        if placed < len(made.places):
            # Another change came first. Sessions that were not placed are planned again
            # immediately.
            log.info("placements were stale", group=group, planned=len(made.places), placed=placed)
            self.loop.nudge()

    async def _plan(self, snapshot: Snapshot, policy: Policy) -> tuple[Plan, int]:
        """Return the plan and the time for which it was made (Unix microseconds)."""
        now = round(self._leader.deadlines.now().timestamp() * 1_000_000)
        selectors = self._selectors.load(policy.custom)
        if self._planners.examined(snapshot, policy) < IN_THREAD:
            return self._planners.plan(snapshot, policy, now, selectors), now
        return await asyncio.to_thread(self._planners.plan, snapshot, policy, now, selectors), now


def waits_s(pending: Mapping[SessionId, Pending], made: Plan, now: int) -> list[float]:
    """How long each session that the plan places has been pending. ``now``: Unix microseconds."""
    placed = [pending[place.session_id] for place in made.places]
    return [max(0, now - session.queued_since) / 1_000_000 for session in placed]
