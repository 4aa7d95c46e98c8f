"""Locks that the statement recording holds takes: in id order, like the locks of transitions."""

from __future__ import annotations

import asyncio

import asyncpg

from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL


async def test_holds_and_transitions_lock_in_one_order(
    store: Store, migrated_database: str
) -> None:
    """While another transaction holds the first row, the statement does not hold any of the others
    yet."""
    spec = SessionSpec(command=["x"])
    ids = sorted([(await store.sessions.create(Scope.system("t"), spec)).id for _ in range(20)])
    transition = await asyncpg.connect(migrated_database)
    try:
        async with transition.transaction():
            await transition.execute("SELECT FROM sessions WHERE id = $1 FOR UPDATE", ids[0])
            given = ids[::-1]
            columns = [1] * 20, ['{"reason": "quota"}'] * 20, [0] * 20, [0] * 20
            recording = asyncio.create_task(
                store.database.fetch(SQL["holds_record"], given, *columns, None)
            )
            waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"
            async with asyncio.timeout(30):
                while not await store.database.fetch(waits, "%Record why sessions%"):
                    await asyncio.sleep(0.01)

            await transition.execute(
                "SELECT FROM sessions WHERE id = ANY ($1::uuid[]) FOR UPDATE NOWAIT", ids[1:]
            )

        await recording
        [row] = await transition.fetch("SELECT count(*) AS n FROM sessions WHERE hold IS NOT NULL")
        assert row["n"] == 20
    finally:
        await transition.close()
