"""Outbox of events in Postgres, and the queues of deliveries.

Triggers add what happens to the outbox in the same transaction. ``assign`` moves it into the queues
of subscriptions, each event once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.notifications.subscriptions import MAX_QUEUED

BATCH = 500
_FACTS = {
    "sessions": SQL["outbox_sessions"],
    "pipelines": SQL["outbox_pipelines"],
    "endpoints": SQL["outbox_endpoints"],
    "keys": SQL["outbox_keys"],
}


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event for a subscription. ``outbox_id``: its row in the outbox; None if it has none."""

    delivery_id: str
    subscription_id: str
    outbox_id: int | None
    event: str
    key: str
    subject: str
    at: datetime
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt. ``state``: of the deliveries. ``due_s``: seconds until the next
    attempt, for pending ones. ``counts``: whether a failure is the receiver's. ``pause_s``: pause
    of the subscription. ``disables``: why the subscription is disabled, or empty."""

    state: str
    answer: str
    due_s: float = 0.0
    succeeded: bool = False
    counts: bool = True
    pause_s: float | None = None
    disables: str = ""


class OutboxStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier
        self._connection = db.shared_connection(Purpose.UPKEEP)

    async def has_subscriptions(self) -> bool:
        return bool((await self._db.fetch(SQL["subscriptions_any"]))[0]["any"])

    async def read(self) -> Sequence[Row]:
        """The oldest events in the outbox."""
        return await self._db.fetch(SQL["outbox_read"], BATCH)

    async def subscriptions(self) -> Sequence[Row]:
        return await self._db.fetch(SQL["outbox_subscriptions"])

    async def facts(self, kind: str, ids: Collection[str]) -> dict[str, Row]:
        """Rows about what events are about, by id. ``kind``: sessions, pipelines, endpoints or
        keys."""
        if not ids:
            return {}
        rows = await self._db.fetch(_FACTS[kind], sorted(ids))
        return {row["name" if kind == "keys" else "id"]: row for row in rows}

    async def waiting(
        self, subscriptions: Sequence[Row], now: datetime, *, ending: bool
    ) -> list[tuple[str, str]]:
        """Subscriptions, each with a session that has waited for long, or (``ending``) whose time
        limit is near, since the subscription was last examined."""
        name = "before_end_s" if ending else "waiting_s"
        rows = await self._db.fetch(
            SQL["outbox_ending"] if ending else SQL["outbox_waiting"],
            [row["id"] for row in subscriptions],
            [row["checked_at"] for row in subscriptions],
            [row[name] for row in subscriptions],
            now,
        )
        return [(row["subscription_id"], row["id"]) for row in rows]

    async def checked(self, subscriptions: Sequence[Row], now: datetime) -> None:
        """Record that waiting and ending sessions were examined up to ``now``."""
        ids = [row["id"] for row in subscriptions]
        await self._connection.fetch(SQL["outbox_checked"], ids, now)

    async def note_degraded(self, after_s: float) -> int:
        """Add endpoints to the outbox that have been degraded for ``after_s`` seconds."""
        return len(await self._connection.fetch(SQL["outbox_degraded"], after_s))

    async def assign(self, outbox_ids: Sequence[int], events: Sequence[QueuedEvent]) -> int:
        """Queue the events and remove the rows from the outbox, both or neither. Returns the number
        of subscriptions that got one."""
        rows = await self._connection.fetch(
            SQL["deliveries_add"],
            list(outbox_ids),
            [event.delivery_id for event in events],
            [event.subscription_id for event in events],
            [event.outbox_id for event in events],
            [event.event for event in events],
            [event.key for event in events],
            [event.subject for event in events],
            [event.at for event in events],
            [event.body for event in events],
            MAX_QUEUED,
        )
        if rows:
            self._notifier.notify([Topic.SUBSCRIPTIONS])
        return len(rows)

    async def claim(self, lease: str, lease_s: float, limit: int) -> Sequence[Row]:
        return await self._connection.fetch(SQL["deliveries_claim"], lease, lease_s, limit)

    async def begin(
        self,
        subscription_id: str,
        lease: str,
        *,
        lease_s: float,
        limit: int,
        mail_id: str | None,
        only_tests: bool,
    ) -> tuple[int | None, list[Row]]:
        """Begin an attempt. Returns the state of the queue, for ``release``, and the deliveries;
        None if the lease has ended."""
        args = subscription_id, lease, lease_s, limit, mail_id, only_tests
        rows = await self._connection.fetch(SQL["deliveries_begin"], *args)
        if not rows:
            return None, []
        return rows[0]["woken"], [row for row in rows if row["id"] is not None]

    async def end(self, subscription_id: str, ids: Collection[str], outcome: AttemptEnd) -> None:
        await self._connection.fetch(
            SQL["deliveries_end"],
            subscription_id,
            list(ids),
            outcome.state,
            outcome.answer,
            outcome.due_s,
            outcome.succeeded,
            outcome.counts,
            outcome.pause_s,
            outcome.disables,
        )

    async def release(self, subscription_id: str, lease: str, woken: int) -> None:
        await self._connection.fetch(SQL["deliveries_release"], subscription_id, lease, woken)

    async def disable(self, subscription_id: str, reason: str) -> None:
        await self._connection.fetch(SQL["deliveries_disable"], subscription_id, reason)

    async def next_s(self) -> float | None:
        """Seconds until a delivery is due; None if none is."""
        rows = await self._db.fetch(SQL["deliveries_next"])
        return rows[0]["seconds"] if rows else None

    async def expire(self, age_s: float) -> int:
        """Give up deliveries that are older than ``age_s`` seconds, a limited number of them."""
        return len(await self._connection.fetch(SQL["deliveries_expire"], age_s, BATCH))

    async def delete_old(self, kept_s: float) -> int:
        """Delete deliveries that ended more than ``kept_s`` seconds ago, a limited number."""
        return len(await self._connection.fetch(SQL["deliveries_delete_old"], kept_s, BATCH))

    async def degraded(self) -> set[str]:
        """Ids of the endpoints that are stored as degraded."""
        return {row["endpoint_id"] for row in await self._db.fetch(SQL["endpoints_degraded"])}

    async def set_degraded(self, endpoint_id: str, *, degraded: bool) -> None:
        sql = SQL["endpoint_degraded"] if degraded else SQL["endpoint_recovered"]
        await self._connection.fetch(sql, endpoint_id)
