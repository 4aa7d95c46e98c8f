"""Load of models and replicas in Postgres: the reports of proxies and engines, and the resulting
scaling."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Integer

from moorage.common.link.proxy_messages import EngineRequests, LoadReport
from moorage.common.model.ids import AgentId, EndpointId, KernelId, SessionId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.resource_usage import EngineUse
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import ScalingDecision
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.routines import EndpointInfo
from moorage.manager.serving.snapshots import AutoscaleDecision, LoadSample, Scaling
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row, as_uuid
from moorage.manager.store.database.unreadable import UnreadableRows, read_page
from moorage.manager.store.database.windows import FRESH_S
from moorage.manager.store.endpoints.repository import EndpointStore
from moorage.manager.store.schema.base import TIME

_LARGEST = 1_000_000_000
# Seconds after which a silent process no longer owns its name. Processes report at least every 5 s.
CLAIM_S = 15.0
_DECISIONS = Listing(
    SQL["scaling_decisions"],
    {"number": Integer(), "at": TIME},
    sorts=("at",),
    key=("number",),
    default="-at",
)


@dataclass(frozen=True, slots=True)
class ScaledEndpoint:
    """Autoscaled endpoint with its current load. ``requests``: the counters of the proxies, by
    proxy and incarnation. ``version``: the endpoint's version; a decision about another version is
    void."""

    endpoint_id: EndpointId
    name: str
    version: int
    scaling: Scaling
    load: LoadSample
    requests: Mapping[str, int]


class LoadStore:
    """``manager``: the id of this manager process."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        endpoints: EndpointStore,
        manager: str,
        *,
        unreadable: UnreadableRows,
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._endpoints = endpoints
        self._manager = manager
        self._unreadable = unreadable

        # If a crash loses data, proxies and engines report it again.
        self._connection = db.dedicated_connection(durable=False)
        self._scaling_connection = db.dedicated_connection()

    async def put(
        self, reports: Collection[LoadReport], addresses: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Write at most one report per proxy. Wakes whoever waits for a request, or for one to end.

        ``addresses``: source addresses of the reports, by proxy; a missing one stays as it was.
        Returns the proxies whose reports were not written because another process owns their name,
        each with the address of that process."""
        addresses = addresses or {}
        loads = [(r.proxy_id, m) for r in reports for m in r.models]
        rows = await self._connection.fetch(
            SQL["loads_put"],
            [r.proxy_id for r in reports],
            [r.incarnation for r in reports],
            [r.routes_generation for r in reports],
            [r.whole for r in reports],
            [proxy_id for proxy_id, _ in loads],
            [m.model for _, m in loads],
            [min(m.in_flight, _LARGEST) for _, m in loads],
            [min(m.waiting, _LARGEST) for _, m in loads],
            [min(m.requests, 1 << 60) for _, m in loads],
            [min(max(m.idle_s, 0.0), 1e9) for _, m in loads],
            [
                None if m.first_token_ms is None else min(m.first_token_ms, _LARGEST)
                for _, m in loads
            ],
            [
                json.dumps(
                    {
                        replica.session_id: replica.in_flight
                        for replica in m.replicas
                        if replica.in_flight
                    }
                )
                for _, m in loads
            ],
            [r.tells_apps for r in reports],
            self._manager,
            [addresses.get(r.proxy_id) for r in reports],
            CLAIM_S,
            [
                json.dumps(
                    {
                        replica.session_id: replica.failing_s
                        for replica in m.replicas
                        if replica.failing_s
                    }
                )
                for _, m in loads
            ],
            [
                json.dumps([replica.session_id for replica in m.replicas if replica.answers])
                for _, m in loads
            ],
            *(
                [min(getattr(m, counter), 1 << 60) for _, m in loads]
                for counter in ("errors", "tokens_in", "tokens_out")
            ),
        )
        self._notifier.notify_endpoints(
            {EndpointId(row["id"]) for row in rows if row["id"] is not None}
        )

        return {row["proxy_id"]: row["address"] for row in rows if row["proxy_id"] is not None}

    async def release(self, ended: Mapping[str, str]) -> None:
        """Record that these proxies' links to this manager have ended; each is given with its
        incarnation."""
        await self._connection.fetch(
            SQL["loads_release"], list(ended), list(ended.values()), self._manager
        )

    async def put_engines(self, loads: Sequence[tuple[AgentId, EngineUse]]) -> None:
        """Write the loads of engines, each with the agent that reports it; at most one per kernel.

        Impossible loads are omitted, because they would make the writes of other agents' loads
        fail."""
        loads = [
            (agent, load) for agent, load in loads if "\0" not in agent and as_uuid(load.kernel_id)
        ]
        rows = await self._connection.fetch(
            SQL["engine_loads_put"],
            [agent_id for agent_id, _ in loads],
            [load.kernel_id for _, load in loads],
            [min(load.running, _LARGEST) for _, load in loads],
            [min(load.waiting, _LARGEST) for _, load in loads],
            [None if load.kv_cache is None else min(load.kv_cache, 1000) for _, load in loads],
            [
                min(load.max_model_len, _LARGEST) if load.max_model_len else None
                for _, load in loads
            ],
        )
        self._notifier.notify_routes({SessionId(row["session_id"]) for row in rows})

    async def engines_changed(self, since: datetime) -> tuple[tuple[EngineRequests, ...], datetime]:
        """Loads of engines that changed after ``since``, and the value of ``since`` for the next
        call."""
        row = (await self._connection.fetch(SQL["engine_loads_changed"], since))[0]
        loads = (json.loads(load) if isinstance(load, str) else load for load in row["loads"])
        return tuple(EngineRequests(KernelId(load[0]), *load[1:]) for load in loads), row["next"]

    async def forget(self, silent_s: float) -> None:
        """Delete proxies that have been silent for too long."""
        await self._connection.fetch(SQL["loads_forget"], silent_s)

    # The autoscaler.

    async def changed(self, _: Scope, since: datetime) -> tuple[list[EndpointId], datetime]:
        """Autoscaled endpoints whose load changed after ``since``, and the value of ``since`` for
        the next call."""
        row = (await self._scaling_connection.fetch(SQL["loads_changed"], since))[0]
        return [EndpointId(endpoint) for endpoint in row["endpoints"]], row["next"]

    async def autoscaled(self, _: Scope) -> list[EndpointId]:
        rows = await self._scaling_connection.fetch(SQL["endpoints_autoscaled"])
        return [EndpointId(row["id"]) for row in rows]

    async def of_endpoints(self, _: Scope, among: Collection[EndpointId]) -> list[ScaledEndpoint]:
        """The autoscaled endpoints among these, with their load."""
        rows = await self._scaling_connection.fetch(SQL["endpoint_loads"], sorted(among), FRESH_S)
        return self._unreadable.each("endpoint", rows, _scaled)

    async def scale(
        self,
        _: Scope,
        endpoint: ScaledEndpoint,
        decision: AutoscaleDecision,
        inputs: Mapping[str, Any],
        *,
        term: int,
    ) -> bool:
        """Carry out a decision, and record it with its ``inputs``. False if the endpoint has
        changed."""
        change = endpoint.endpoint_id, endpoint.scaling.wanted, decision.replicas
        return await self._scale(
            *change, term, decision.rule, decision.detail, dict(inputs), endpoint.version
        )

    async def scale_to(
        self, _: Scope, endpoint: EndpointInfo, replicas: int, rule: str, *, detail: str, term: int
    ) -> bool:
        """Like ``scale``, for a custom routine."""
        if replicas == endpoint.wanted:
            return False
        change = endpoint.endpoint_id, endpoint.wanted, replicas
        return await self._scale(*change, term, rule, detail[:500], {}, endpoint.version)

    async def _scale(self, *arguments: Any) -> bool:
        rows = await self._scaling_connection.fetch(SQL["endpoint_autoscale"], *arguments)
        changed = {EndpointId(row["id"]) for row in rows}
        self._notifier.notify_endpoints(changed)
        self._notifier.notify_routes(changed)
        return bool(changed)

    async def decisions(
        self, scope: Scope, name: str, paging: Paging = FIRST
    ) -> Page[ScalingDecision]:
        """Decisions about an endpoint, newest first. Raises ``NotFound``."""
        record = await self._endpoints.get(scope, name)
        rows, following = await _DECISIONS.page(self._db, paging, record.snapshot.endpoint_id)
        return read_page(
            ScalingDecision,
            "decision",
            rows=rows,
            read=lambda row: ScalingDecision(**dict(row)),
            following=following,
            name="number",
        )


def _scaled(row: Row) -> ScaledEndpoint:
    spec = EndpointSpec.model_validate(row["spec"] | row["serving"])
    assert spec.autoscale is not None
    waiting = row["waiting"] or 0

    # a proxy cannot tell which of them are waiting
    running = max(row["running"] or 0, row["in_flight"] - waiting)
    load = LoadSample(
        row["at"],
        ready=row["ready"],
        running=int(running),
        waiting=int(waiting),
        held=int(row["held"]),
        kv_cache=None if row["kv_cache"] is None else float(row["kv_cache"]) / 1000,
        first_token_s=None if row["first_token_ms"] is None else row["first_token_ms"] / 1000,
        idle_s=None if row["idle_s"] is None else float(row["idle_s"]),
    )
    scaling = Scaling(
        spec.autoscale,
        row["wanted"],
        scaled_at=row["scaled_at"],
        active_since=row["active_since"],
        full_at=row["full_at"],
    )
    return ScaledEndpoint(
        EndpointId(row["id"]),
        spec.name,
        version=row["version"],
        scaling=scaling,
        load=load,
        requests=row["requests"] or {},
    )
