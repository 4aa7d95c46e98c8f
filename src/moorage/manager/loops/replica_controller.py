"""Replica controller: starts and stops replicas until each endpoint has the wanted number."""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import Conflict, NotFound
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.serving.replicas import plan_replicas
from moorage.manager.serving.snapshots import EndpointSnapshot
from moorage.manager.store import Store, Topic
from moorage.manager.termination import SessionTerminator

_SCOPE = Scope.system("replicas")
log = structlog.get_logger("moorage.replicas")


class ReplicaController:
    def __init__(self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock) -> None:
        self._store, self._leader, self._clock = store, leader, clock
        self._terminator = terminator
        self.loop = Loop("replicas", self.run_once, interval_s=1.0, clock=clock)
        store.notifier.on(Topic.ENDPOINTS, self.loop.nudge)

    async def run_once(self) -> None:
        for endpoint in await self._store.endpoints.to_reconcile(_SCOPE):
            if (term := self._leader.term) is None:
                return
            await self._reconcile(endpoint, term)

    async def _reconcile(self, endpoint: EndpointSnapshot, term: int) -> None:
        plan = plan_replicas(endpoint, self._leader.deadlines.now())
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
                return
            log.info("start replica", endpoint=endpoint.name, session=made.id, failures=plan.failures)
