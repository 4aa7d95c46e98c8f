"""Rows for tests of one statement: kernels in any state, without the history that leads there."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from moorage.common.model.ids import KernelId
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent

SYSTEM = Scope.system("t")
# When the rows that the statement finds were changed.
LONG_AGO = datetime.fromisoformat("2020-01-01T00:00:00+00:00")


async def agents(store: Store, *names: str, **options: Any) -> None:
    for name in names:
        await FakeAgent(store, name, **options).report()


async def session(store: Store, name: str, **more: object) -> str:
    base: dict[str, object] = {"name": name, "command": ["x"], "resources": {"cpu": 1}}
    return (await store.sessions.create(SYSTEM, SessionSpec.model_validate(base | more))).id


async def kernel(
    store: Store, owner: str, number: int, status: str, *, agent: str | None, **columns: object
) -> KernelId:
    """A sub kernel of a session, with the number in its host name."""
    values: dict[str, object] = {
        "id": str(uuid4()),
        "session_id": owner,
        "attempt": 1,
        "status": status,
        "agent_id": agent,
        "secret": "s",
        "hostname": f"sub{number}",
        "cluster_role": "sub",
        "cluster_index": number,
        "status_since": LONG_AGO,
    } | columns
    places = ", ".join(f"${place}" for place in range(1, len(values) + 1))
    await store.database.fetch(
        f"INSERT INTO kernels ({', '.join(values)}) VALUES ({places})", *values.values()
    )

    return KernelId(str(values["id"]))


async def rows(store: Store, table: str, key: str = "id") -> dict[str, dict[str, Any]]:
    """All rows of a table by key."""
    found = await store.database.fetch(f"SELECT * FROM {table}")
    return {str(row[key]): dict(row) for row in found}
