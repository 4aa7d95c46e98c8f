"""Load of endpoints, nodes and devices over time: by minute, hour and day, like the occupancy of
resource groups. It is only for display; no decision depends on it.

The leader adds one sample at a time, in one statement for all endpoints and one for all nodes, from
what proxies, engines and agents reported last. A row of a node has all of its devices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from moorage.common.views.load import AgentLoad, DeviceLoad, EndpointLoad, LoadStep
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.windows import FRESH_S
from moorage.manager.store.endpoints.repository import EndpointStore

DAY_S = 86_400.0
# Retention of spans by their length in seconds.
KEPT_S = {60: 2 * DAY_S, 3600: 90 * DAY_S, 86_400: 3650 * DAY_S}
BATCH = 5000
# Usage of a node counts for this long: agents of a large installation report less often.
USAGE_FRESH_S = 120.0
# The longest pause between two samples after which the counters of the proxies are still counted.
LONGEST_PAUSE_S = 120.0
_COLUMNS = tuple(
    name for name in EndpointLoad.model_fields if name not in {"name", "since", "until", "step"}
)


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """Steps of ``step_s`` seconds, from the one at ``since`` up to ``until`` (exclusive), which are
    made of spans of ``span_s`` seconds."""

    step: LoadStep
    span_s: int
    step_s: int
    since: datetime
    until: datetime


class LoadHistoryStore:
    def __init__(self, db: Database, endpoints: EndpointStore) -> None:
        self._db = db
        self._endpoints = endpoints
        self._connection = db.shared_connection(Purpose.UPKEEP, durable=False)

    async def record(self, term: int) -> None:
        """Add a sample of the current load unless the leader's ``term`` is over."""
        await self._connection.fetch(SQL["endpoint_load_record"], term, FRESH_S, LONGEST_PAUSE_S)
        await self._connection.fetch(SQL["agent_load_record"], term, USAGE_FRESH_S)

    async def delete_old(self) -> bool:
        """Delete spans older than ``KEPT_S``, a bounded number per call. Returns whether more may
        be left."""
        more = False
        for seconds, kept_s in KEPT_S.items():
            for statement in (
                SQL["endpoint_load_spans_delete_old"],
                SQL["agent_load_spans_delete_old"],
            ):
                deleted = await self._connection.fetch(statement, seconds, kept_s, BATCH)
                more |= len(deleted) >= BATCH
        return more

    async def of_endpoint(self, scope: Scope, name: str, window: LoadWindow) -> EndpointLoad:
        """Load of an endpoint. Raises ``NotFound``."""
        record = await self._endpoints.get(scope, name)
        rows = await self._db.fetch(
            SQL["endpoint_load"],
            record.snapshot.endpoint_id,
            window.span_s,
            window.step_s,
            window.since,
            window.until,
        )
        return EndpointLoad(
            name=name,
            since=window.since,
            until=window.until,
            step=window.step,
            **{column: [row[column] for row in rows] for column in _COLUMNS},
        )

    async def of_agent(self, agent_id: str, window: LoadWindow) -> AgentLoad:
        """Load of the node of an agent, which the caller may see."""
        arguments = agent_id, window.span_s, window.step_s, window.since, window.until
        rows = await self._db.fetch(SQL["agent_load"], *arguments)
        devices = await self._db.fetch(SQL["agent_devices_load"], *arguments)

        return AgentLoad(
            id=agent_id,
            since=window.since,
            until=window.until,
            step=window.step,
            at=[row["at"] for row in rows],
            cpu=[row["cpu"] for row in rows],
            memory=[row["memory"] for row in rows],
            devices=[DeviceLoad(**dict(device)) for device in devices],
        )
