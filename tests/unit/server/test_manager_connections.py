"""A manager's connections to Postgres: as many as the documents say and doctor expects."""

from __future__ import annotations

from moorage.common.aio.clock import SystemClock
from moorage.manager.store import Store
from moorage.manager.store.database.connections import Database, Purpose
from moorage.server.doctor.cluster import CONNECTIONS_OF_MANAGER

LISTENER = 1
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def test_manager_opens_no_more_than_doctor_expects() -> None:
    store = Store(NOWHERE, SystemClock())
    assert store.database.most_connections + LISTENER <= CONNECTIONS_OF_MANAGER


def test_statements_of_one_purpose_share_a_connection() -> None:
    database = Database(NOWHERE)
    administration = database.shared_connection(Purpose.ADMINISTRATION)
    assert database.shared_connection(Purpose.ADMINISTRATION) is administration
    others = [
        database.shared_connection(Purpose.UPKEEP),
        database.shared_connection(Purpose.UPKEEP, durable=False),
        database.dedicated_connection(),
    ]
    assert len({id(connection) for connection in (administration, *others)}) == 4
