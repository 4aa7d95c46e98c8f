"""Runner of custom routines: entry points of the group ``moorage.routines``, one loop for each.

A routine's error or timeout ends only that run: its loop reports the failure and continues with
backoff.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.paging import Paging
from moorage.common.model.reasons import Reason
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.serving.routines import (
    DrainReplica,
    EndpointInfo,
    Intents,
    Note,
    ReplicaInfo,
    Routine,
    ScaleEndpoint,
    ServingView,
)
from moorage.manager.serving.status import endpoint_status, replica_state
from moorage.manager.store import Store
from moorage.manager.store.endpoints.rows import EndpointRecord

log = structlog.get_logger("moorage.routines")
GROUP = "moorage.routines"
INTERVAL_S = 10.0
TIMEOUT_S = 60.0
_SCOPE = Scope.system("routines")
_PAGE = 200


class RoutineRunner:
    """``loops``: one per routine."""

    def __init__(
        self,
        store: Store,
        leader: Leader,
        clock: Clock,
        entries: Iterable[EntryPoint] | None = None,
    ) -> None:
        self._store = store
        self._leader = leader
        self.loops: list[Loop] = []
        self._loaded: dict[str, Routine] = {}
        for entry in entry_points(group=GROUP) if entries is None else entries:
            run = partial(self._run, entry)
            self.loops.append(
                Loop(f"routine.{entry.name}", run, interval_s=INTERVAL_S, clock=clock)
            )

    async def _run(self, entry: EntryPoint) -> None:
        """Run the routine. Raises whatever it raises, and the error if it cannot be imported."""
        term = self._leader.term
        name = entry.name
        if term is None:
            return
        if name not in self._loaded:
            self._loaded[name] = entry.load()

        routine = self._loaded[name]
        intents = Intents()
        async with asyncio.timeout(TIMEOUT_S):
            await routine(await self._view(), intents)

        for asked in intents.asked:
            await self._carry_out(name, asked, term)

    async def _view(self) -> ServingView:
        found: list[EndpointInfo] = []
        cursor: str | None = None
        while True:
            records, cursor = await self._store.endpoints.page(_SCOPE, Paging(_PAGE, cursor))
            found += map(_info, records)
            if cursor is None:
                return ServingView(tuple(found))

    async def _carry_out(
        self, name: str, asked: ScaleEndpoint | DrainReplica | Note, term: int
    ) -> None:
        match asked:
            case ScaleEndpoint(endpoint, replicas, why):
                done = await self._store.loads.scale_to(
                    _SCOPE,
                    endpoint,
                    replicas=replicas,
                    rule=f"routine {name}",
                    detail=why,
                    term=term,
                )
                log.info(
                    "routine scales", routine=name, endpoint=endpoint.name, to=replicas, done=done
                )
            case DrainReplica(session_id):
                reason = Reason.USER_REQUESTED
                done = await self._store.replicas.drain(_SCOPE, [(session_id, reason)], term) > 0
                log.info("routine drains", routine=name, session=session_id, done=done)
            case Note(endpoint, text):
                log.info("routine notes", routine=name, endpoint=endpoint.name, note=text[:500])


def _info(record: EndpointRecord) -> EndpointInfo:
    snapshot = record.snapshot
    replicas = [
        ReplicaInfo(
            replica.session_id,
            view.name,
            state=str(state),
            revision=replica.revision,
            agent_id=view.agent_id,
            address=view.address,
            in_flight=replica.in_flight,
            running=replica.load.running if replica.load else 0,
            waiting=replica.load.waiting if replica.load else 0,
            kv_cache=replica.load.kv_cache if replica.load else None,
        )
        for view, replica in zip(record.replicas, snapshot.replicas, strict=True)
        if (state := replica_state(replica))
    ]
    return EndpointInfo(
        snapshot.endpoint_id,
        snapshot.name,
        project=snapshot.owner.project,
        status=str(endpoint_status(snapshot)),
        wanted=snapshot.wanted,
        waiting=snapshot.waiting,
        version=record.version,
        replicas=tuple(replicas),
    )
