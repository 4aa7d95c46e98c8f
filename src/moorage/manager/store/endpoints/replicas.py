"""Replicas of endpoints in Postgres, as the leader reconciles them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.snapshots import EndpointSnapshot, StartHistory
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.database.windows import STARTS
from moorage.manager.store.endpoints.rows import read_endpoints, to_reconcile
from moorage.manager.store.kernels.orders import OrderStore

_FIRST = EndpointId("00000000-0000-0000-0000-000000000000")


class ReplicaStore:
    """``term``: the leader's term; writes by a former leader change nothing."""

    def __init__(
        self, db: Database, notifier: Notifier, orders: OrderStore, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._orders = orders
        self._unreadable = unreadable
        self._connection = db.dedicated_connection()
        self._sweep_connection = db.shared_connection(Purpose.UPKEEP)

    async def sweep(
        self, _: Scope, after: EndpointId | None, limit: int, *, everything: bool = False
    ) -> tuple[list[EndpointId], EndpointId | None]:
        """Examine ``limit`` endpoints after ``after`` (None starts with the first). Returns those
        whose replicas differ from the desired state or, with ``everything``, all of them; and the
        cursor for the next call, which is None if there are no more."""
        args = after or _FIRST, limit, everything
        row = (await self._sweep_connection.fetch(SQL["endpoints_sweep"], *args))[0]
        last = None if row["last"] is None else EndpointId(row["last"])
        return [EndpointId(endpoint_id) for endpoint_id in row["endpoints"]], last

    async def to_reconcile(self, _: Scope, among: Collection[EndpointId]) -> list[EndpointSnapshot]:
        """Endpoints that are not deleted, and deleted ones that still have live replicas."""
        return to_reconcile(await read_endpoints(self._db, sorted(among)), self._unreadable)

    async def endpoint_of(self, _: Scope, session_id: SessionId) -> EndpointSnapshot | None:
        """The endpoint of which a session is a replica; None if it is not a replica, or the
        endpoint is gone."""
        found = await self._db.fetch(SQL["session_endpoint"], session_id)
        records = await read_endpoints(self._db, [row["endpoint_id"] for row in found])
        return records[0].snapshot if records else None

    async def start_history(self, group: str) -> StartHistory | None:
        """Start history of all jobs in a resource group of kind hpc; None if none has become
        ready."""
        rows = await self._db.fetch(SQL["start_history"], [None], [group], STARTS)
        return (
            StartHistory(**{name: rows[0][name] for name in StartHistory.__slots__})
            if rows
            else None
        )

    async def drain(self, _: Scope, replicas: Sequence[tuple[SessionId, Reason]], term: int) -> int:
        """Drain replicas: they get no new requests from now on. Returns how many of them had been
        getting requests."""
        return await self._set_draining(
            [(replica, str(reason)) for replica, reason in replicas], term
        )

    async def revive(self, _: Scope, replicas: Sequence[SessionId], term: int) -> int:
        """Revive draining replicas: they get requests again."""
        return await self._set_draining([(replica, None) for replica in replicas], term)

    async def _set_draining(
        self, replicas: Sequence[tuple[SessionId, str | None]], term: int
    ) -> int:
        if not replicas:
            return 0

        ids = [replica for replica, _ in replicas]
        reasons = [reason for _, reason in replicas]
        rows = await self._connection.fetch(SQL["replicas_drain"], ids, reasons, term)
        if rows and any(reasons):
            # The generation is drawn after the commit, so every table with a greater generation
            # marks these replicas as draining.
            generation = await self._orders.next_generation()
            drained = [row["id"] for row in rows]
            await self._connection.fetch(SQL["replicas_drain_generation"], drained, generation)

        self._notifier.notify_routes({SessionId(row["id"]) for row in rows})
        self._notifier.notify_endpoints({EndpointId(row["endpoint_id"]) for row in rows})
        return len(rows)

    async def roll_back(
        self,
        _: Scope,
        endpoint: EndpointSnapshot,
        revision: int,
        reason: Reason,
        *,
        detail: str,
        term: int,
    ) -> bool:
        """Return to ``revision``, because the current one failed. Returns False if the endpoint has
        changed in the meantime."""
        rows = await self._connection.fetch(
            SQL["endpoint_retarget"],
            endpoint.endpoint_id,
            endpoint.revision,
            revision,
            term,
            str(reason),
            detail,
        )
        changed = {EndpointId(row["id"]) for row in rows}
        self._notifier.notify_endpoints(changed)
        self._notifier.notify_routes(changed)

        return bool(rows)

    async def complete(self, _: Scope, endpoint: EndpointSnapshot, term: int) -> None:
        """Record that all of the endpoint's replicas have the current revision and are ready."""
        args = endpoint.endpoint_id, endpoint.revision, term
        await self._connection.fetch(SQL["endpoint_completed"], *args)
        self._notifier.notify_endpoints([EndpointId(endpoint.endpoint_id)])
