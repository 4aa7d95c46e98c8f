"""Replica controller: starts and stops replicas until each endpoint has the wanted number."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.ids import EndpointId
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.loops.leader import Leader
from moorage.manager.serving.replicas import plan_replicas
from moorage.manager.serving.snapshots import EndpointSnapshot
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator

_SCOPE = Scope.system("replicas")
log = structlog.get_logger("moorage.replicas")


# The sweep looks at so many endpoints each second, changed or not. At once where notifications may be
# missing.
SWEEP_S, SWEPT = 1.0, 25


class ReplicaController:
    """Looks at endpoints that changed, whose replicas or their agents did, and whose backoff has ended."""

    def __init__(self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock) -> None:
        self._store, self._leader, self._clock = store, leader, clock
        self._terminator = terminator
        self._changed: set[EndpointId] = set()
        self._retry_at: dict[EndpointId, datetime] = {}
        self._term: int | None = None
        self._sweep: Sweep[EndpointId] = Sweep()
        self._swept_at = 0.0
        self.loop = Loop("replicas", self.run_once, interval_s=1.0, clock=clock)
        store.notifier.on_endpoints(self._endpoints_changed)

    def _endpoints_changed(self, endpoints: Collection[EndpointId] | None) -> None:
        if endpoints is None:
            self._sweep.restart()
        else:
            self._changed.update(endpoints)
        self.loop.nudge()

    async def run_once(self) -> None:
        term, mono = self._leader.term, self._clock.monotonic()
        if term != self._term:
            self._term, self._retry_at = term, {}
            self._sweep.restart()
        if term is None:
            self._changed.clear()
            return
        now = self._leader.deadlines.now()
        for endpoint_id in [one for one, at in self._retry_at.items() if at <= now]:
            del self._retry_at[endpoint_id]
            self._changed.add(endpoint_id)
        while self._sweep.urgent or mono - self._swept_at >= SWEEP_S:
            found, cursor = await self._store.endpoints.sweep(_SCOPE, self._sweep.begin(), SWEPT)
            self._sweep.advance(cursor)
            self._changed.update(found)
            self._swept_at = mono
        changed, self._changed = sorted(self._changed), set()
        try:
            while changed and self._leader.term == term:
                for endpoint in await self._store.endpoints.to_reconcile(_SCOPE, changed[:SWEPT]):
                    await self._reconcile(endpoint, term)
                del changed[:SWEPT]
        finally:
            self._changed.update(changed)  # for a retry

    async def _reconcile(self, endpoint: EndpointSnapshot, term: int) -> None:
        plan = plan_replicas(endpoint, self._leader.deadlines.now())
        self._retry_at.pop(endpoint.endpoint_id, None)
        if plan.retry_at is not None and not plan.start:
            self._retry_at[endpoint.endpoint_id] = plan.retry_at
        for session_id in plan.stop:
            log.info("stop replica", endpoint=endpoint.name, session=session_id, reason=plan.stop_reason)
            await self._terminator.stop(_SCOPE, session_id, reason=plan.stop_reason, term=term)
        for _ in range(plan.start):
            name = f"{endpoint.name[:110]}-{self._clock.new_id()[-6:]}"
            spec = endpoint.spec.session(name)
            try:
                made = await self._store.sessions.create(
                    Scope.system("replicas", endpoint.owner),
                    spec,
                    endpoint_id=endpoint.endpoint_id,
                    term=term,
                )
            except (Conflict, NotFound) as error:
                log.warning(
                    "could not create a replica; the next run retries",
                    endpoint=endpoint.name,
                    error=str(error),
                )
                self._changed.add(endpoint.endpoint_id)
                return
            log.info("start replica", endpoint=endpoint.name, session=made.id, failures=plan.failures)
