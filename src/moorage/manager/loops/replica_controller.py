"""Replica controller: starts, drains and stops replicas as planned by ``serving.replicas``, and
rolls revisions out and back."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import EndpointStatus
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.loops.leader import Leader
from moorage.manager.serving.endpoint_plan import plan_endpoint
from moorage.manager.serving.groups import start_group
from moorage.manager.serving.lifetime import late_successor
from moorage.manager.serving.replicas import ReplicaPlan, consecutive_failures
from moorage.manager.serving.snapshots import EndpointSnapshot
from moorage.manager.serving.status import endpoint_status
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.site_jobs import as_job, find_problem

_SCOPE = Scope.system("replicas")
log = structlog.get_logger("moorage.replicas")


# Number of endpoints that the sweep examines each second, changed or not. Where notifications may
# be missing, the sweep runs immediately, and every endpoint is also planned once. Each run plans a
# limited number of them, starting with those that differ from their desired state.
SWEEP_S = 1.0
SWEPT = 25


class ReplicaController:
    """Examines endpoints that have changed, whose replicas or agents have changed, or whose next
    plan is due.

    Each plan states when the next one is due. In a new term, every endpoint is planned once,
    including healthy ones.
    """

    def __init__(
        self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock
    ) -> None:
        self._store = store
        self._leader = leader
        self._clock = clock
        self._terminator = terminator
        self._changed: set[EndpointId] = set()
        self._look_at: dict[EndpointId, datetime] = {}
        self._term: int | None = None
        self._sweep: Sweep[EndpointId] = Sweep()
        self._planning: Sweep[EndpointId] = Sweep()
        self._swept_at = 0.0
        self._late: set[EndpointId] = set()
        self._degraded: set[str] | None = None  # as stored; None: not read in this term
        self.loop = Loop("replicas", self.run_once, interval_s=1.0, clock=clock)
        store.notifier.on_endpoints(self._endpoints_changed)

    def _endpoints_changed(self, endpoints: Collection[EndpointId] | None) -> None:
        if endpoints is None:
            self._restart()
        else:
            self._changed.update(endpoints)
        self.loop.nudge()

    def _restart(self) -> None:
        self._sweep.restart()
        self._planning.restart()

    async def run_once(self) -> None:
        term = self._leader.term
        mono = self._clock.monotonic()
        if term != self._term:
            self._late = set()
            self._degraded = None
            self._term = term
            self._look_at = {}
            self._restart()

        if term is None:
            self._changed.clear()
            return

        now = self._leader.deadlines.now()
        for endpoint_id in [due for due, at in self._look_at.items() if at <= now]:
            del self._look_at[endpoint_id]
            self._changed.add(endpoint_id)

        while self._sweep.urgent or mono - self._swept_at >= SWEEP_S:
            found, cursor = await self._store.replicas.sweep(_SCOPE, self._sweep.begin(), SWEPT)
            self._sweep.advance(cursor)
            self._changed.update(found)
            self._swept_at = mono

        await self._reconcile_changed(term)
        if self._planning.urgent:
            found, cursor = await self._store.replicas.sweep(
                _SCOPE, self._planning.begin(), SWEPT, everything=True
            )
            self._changed.update(found)
            await self._reconcile_changed(term)
            self._planning.advance(cursor)

        if self._planning.urgent:
            self.loop.nudge()

    async def _reconcile_changed(self, term: int) -> None:
        changed = sorted(self._changed)
        self._changed = set()
        try:
            while changed and self._leader.term == term:
                endpoints = await self._store.replicas.to_reconcile(_SCOPE, changed[:SWEPT])
                await self._together(*(self._reconcile(endpoint, term) for endpoint in endpoints))
                del changed[:SWEPT]
        finally:
            self._changed.update(changed)  # for a retry

    async def _reconcile(self, endpoint: EndpointSnapshot, term: int) -> None:
        plan = plan_endpoint(endpoint, self._leader.deadlines.now())
        self._tell_late(endpoint, self._leader.deadlines.now())
        await self._note_degraded(endpoint)
        self._look_at.pop(endpoint.endpoint_id, None)
        if plan.look_at is not None:
            self._look_at[endpoint.endpoint_id] = plan.look_at
        if plan.roll_back_to is not None:
            await self._roll_back(endpoint, plan.roll_back_to, plan.failures, term)
            return

        # Actions that free capacity precede those that use it. Writes of one kind share a
        # statement.
        await self._together(
            self._store.replicas.drain(_SCOPE, plan.drain, term),
            *(self._stop(endpoint, *some, term) for some in _by_reason(plan.stop).items()),
        )
        await self._store.replicas.revive(_SCOPE, plan.revive, term)
        started = [(endpoint.spec, endpoint.revision)] * plan.start
        if endpoint.stable is not None:
            started += [(endpoint.stable.spec, endpoint.stable.revision)] * plan.start_stable

        await self._together(*(self._start(endpoint, *what, plan, term=term) for what in started))
        if plan.is_complete:
            log.info("revision is complete", endpoint=endpoint.name, revision=endpoint.revision)
            await self._store.replicas.complete(_SCOPE, endpoint, term)

    def _tell_late(self, endpoint: EndpointSnapshot, now: datetime) -> None:
        """Publish an event when a replica's walltime will end before its successor is ready, and
        another when that is no longer the case."""
        late = late_successor(endpoint, now)
        endpoint_id = endpoint.endpoint_id
        if (late is not None) == (endpoint_id in self._late):
            return

        if late is None:
            self._late.discard(endpoint_id)
            log.info("walltimes no longer end before their successors", endpoint=endpoint.name)
        else:
            self._late.add(endpoint_id)
            log.warning(
                "a walltime ends before its successor is expected",
                endpoint=endpoint.name,
                session=late[0].session_id,
                ends_at=str(late[0].ends_at),
                expected_at=str(late[1] or "unknown"),
            )

        self._store.notifier.notify_endpoints([endpoint_id])

    async def _note_degraded(self, endpoint: EndpointSnapshot) -> None:
        """Store since when an endpoint is degraded, for notifications."""
        if self._degraded is None:
            self._degraded = await self._store.outbox.degraded()

        endpoint_id = str(endpoint.endpoint_id)
        degraded = endpoint_status(endpoint) is EndpointStatus.DEGRADED
        if degraded == (endpoint_id in self._degraded):
            return

        await self._store.outbox.set_degraded(endpoint_id, degraded=degraded)
        if degraded:
            self._degraded.add(endpoint_id)
        else:
            self._degraded.discard(endpoint_id)

    async def _together(self, *actions: Awaitable[object]) -> None:
        """Run all of them to completion, then raise the first failure."""
        for outcome in await asyncio.gather(*actions, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _roll_back(
        self, endpoint: EndpointSnapshot, revision: int, failures: int, term: int
    ) -> None:
        last = consecutive_failures(endpoint)[0]
        detail = f"{failures} replicas failed in a row, the last one: {REASONS[last.reason].text}"
        if await self._store.replicas.roll_back(
            _SCOPE, endpoint, revision=revision, reason=last.reason, detail=detail, term=term
        ):
            log.warning(
                "revision rolled back",
                endpoint=endpoint.name,
                revision=endpoint.revision,
                to=revision,
                reason=last.reason,
                failures=failures,
            )

    async def _stop(
        self, endpoint: EndpointSnapshot, reason: Reason, replicas: Sequence[SessionId], term: int
    ) -> None:
        for session_id in replicas:
            log.info("stop replica", endpoint=endpoint.name, session=session_id, reason=reason)
        await self._terminator.stop_all(_SCOPE.actor, replicas, reason=reason, term=term)

    async def _start(
        self,
        endpoint: EndpointSnapshot,
        spec: EndpointSpec,
        revision: int,
        plan: ReplicaPlan,
        *,
        term: int,
    ) -> None:
        name = f"{endpoint.name[:110]}-{self._clock.new_id()[-6:]}"
        group = start_group(endpoint, self._leader.deadlines.now())
        try:
            site = await self._store.groups.site(group)
            if (
                problem := find_problem(replica := spec.session(name, group), group, site)
            ) is not None:
                raise problem

            made = await self._store.sessions.create(
                Scope.system("replicas", endpoint.owner),
                as_job(replica, site),
                endpoint_id=endpoint.endpoint_id,
                endpoint_revision=revision,
                term=term,
            )
        except (Conflict, InvalidInput, NotFound) as error:
            log.warning(
                "could not create a replica; the next run retries",
                endpoint=endpoint.name,
                error=str(error),
            )
            self._changed.add(endpoint.endpoint_id)
            return

        log.info("start replica", endpoint=endpoint.name, session=made.id, failures=plan.failures)


def _by_reason(stop: Sequence[tuple[SessionId, Reason]]) -> Mapping[Reason, Sequence[SessionId]]:
    found: defaultdict[Reason, list[SessionId]] = defaultdict(list)
    for session_id, reason in stop:
        found[reason].append(session_id)
    return found
