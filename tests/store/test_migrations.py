"""Migrations of databases that hold data."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from moorage.common.model.roles import Role
from moorage.manager.store import migrate

from .conftest import open_store

REASONS = [
    ("no-capacity", "insufficient-resources"),
    ("never-fits", "infeasible"),
    ("no-agent", "no-eligible-agent"),
    ("starts-later", "begin-time"),
    ("retry-pause", "backoff"),
    ("docker-away", "runtime-unavailable"),
    ("user-requested", "user-requested"),
]
EVENTS = [("rerun", "requeue"), ("ended-badly", "failed"), ("created", "created")]
RESULTS = [("FAILURE", "FAILED"), ("SUCCESS", "SUCCESS"), ("UNDEFINED", "UNDEFINED")]
OLD_ROWS = """
INSERT INTO agents (id, resource_group, status, identity, incarnation, stream, address, version, arch,
                    runtimes, engines, labels, connected_at, last_seen)
VALUES ('node-1', 'default', 'ALIVE', '', 'i', 1, '127.0.0.1', '1', 'x86_64',
        '{process}', '{custom}', '{}', now(), now());
INSERT INTO agent_slots (agent_id, slot, device_id, capacity, offered, used, model, memory_bytes, healthy,
                         island, trouble)
VALUES ('node-1', 'cuda.device', 'GPU-0', 1000, 1000, 0, 'H100', 1, false, 'nvlink-0', 'XID 79');
INSERT INTO join_tokens (id, verifier, kind, uses, expires_at, created_by)
VALUES ('00000000-0000-7000-8000-00000000000a', repeat('a', 64), 'agent', 1, now() + interval '1 h', 't');
INSERT INTO link_members (id, kind, name, token_id, public_key, certificate_until)
VALUES ('00000000-0000-7000-8000-00000000000b', 'agent', 'node-1',
        '00000000-0000-7000-8000-00000000000a', 'k', now());
INSERT INTO decisions (resource_group, from_at, to_at, term, run, number, format, whole, passes, dropped,
                       size, body)
SELECT 'default', now(), now(), 1, gen_random_uuid(), format, format, true, 1, 0, 1, 'x'
FROM (VALUES (1), (2)) f(format);
"""
OLD_SESSION = """
INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, created_by, owner,
                      project, reason, result, hold, attempt, reruns, rerun_from)
VALUES ($1::uuid, $1::uuid::text, 'batch', 'PENDING', 'default', 10, '{}', '{}', 't', 'ann',
        'vision', $2, $3, $4, 4, 2, 1)
"""
OLD_KERNEL = """
INSERT INTO kernels (id, session_id, attempt, status, secret, reason)
VALUES ($1, $1, 1, 'PENDING', 's', $2)
"""
OLD_HISTORY = """
INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor, reason)
VALUES ($1, 1, $2, NULL, 'PENDING', 't', $3)
"""
OLD_PERMIT = """
INSERT INTO permits (id, session_id, app, prefix, sha256, created_by, expires_at)
VALUES ($1, $1, 'jupyter', 'mga-1234', repeat('b', 64), 't', now() + interval '1 h')
"""


@pytest_asyncio.fixture
async def connection(empty_database: str) -> AsyncIterator[asyncpg.Connection]:
    """To a database at revision 0019."""
    await migrate(empty_database, "0019")
    opened = await asyncpg.connect(empty_database)
    yield opened
    await opened.close()


async def insert_session(connection: asyncpg.Connection, number: int, reason: str) -> str:
    session_id = f"00000000-0000-7000-8000-{number:012d}"
    hold = json.dumps({"reason": reason, "text": "t", "refusals": [], "attempts": 1})
    await connection.execute(OLD_SESSION, session_id, reason, RESULTS[number % 3][0], hold)
    await connection.execute(OLD_KERNEL, session_id, reason)
    await connection.execute(OLD_HISTORY, session_id, EVENTS[number % 3][0], reason)
    return session_id


async def test_0020_keeps_rows_and_renames_stored_values(
    connection: asyncpg.Connection, empty_database: str
) -> None:
    await connection.execute(OLD_ROWS)
    ids = [await insert_session(connection, n, reason) for n, (reason, _) in enumerate(REASONS)]
    await connection.execute(OLD_PERMIT, ids[0])

    await migrate(empty_database)

    reasons = [new for _, new in REASONS]
    sessions = await connection.fetch("SELECT * FROM sessions ORDER BY id")
    assert [row["reason"] for row in sessions] == reasons
    assert [json.loads(row["hold"])["reason"] for row in sessions] == reasons
    assert [row["result"] for row in sessions] == [RESULTS[n % 3][1] for n in range(len(ids))]
    assert {(row["requeues"], row["requeued_from"]) for row in sessions} == {(2, 1)}
    kernels = await connection.fetch("SELECT reason FROM kernels ORDER BY id")
    assert [row["reason"] for row in kernels] == reasons
    history = await connection.fetch(
        "SELECT event, reason FROM session_history ORDER BY session_id"
    )
    assert [row["reason"] for row in history] == reasons
    assert [row["event"] for row in history] == [EVENTS[n % 3][1] for n in range(len(ids))]
    assert await connection.fetchval("SELECT name FROM link_peers") == "node-1"
    assert await connection.fetchval("SELECT app FROM access_tokens") == "jupyter"
    slot = await connection.fetchrow("SELECT nvlink_domain, unhealthy_reason FROM agent_slots")
    assert tuple(slot) == ("nvlink-0", "XID 79")
    assert await connection.fetchval("SELECT array_agg(format) FROM decisions") == [2]
    assert (
        await connection.fetchval("SELECT dependency_state('failure', 'TERMINATED', 'FAILED')")
        == "met"
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE sessions SET result = 'FAILURE'")


OLD_KEY = """
INSERT INTO api_keys (id, name, role, prefix, sha256, owner, project)
VALUES (gen_random_uuid(), $1, $2, 'mg-', $3, $4, $5)
"""


async def test_0027_carries_keys_over(empty_database: str) -> None:
    """Their users, projects and memberships are made, also of those that the release before makes
    later."""
    await migrate(empty_database, "0026")
    connection = await asyncpg.connect(empty_database)
    try:
        await connection.execute(OLD_KEY, "admin", "admin", "0" * 64, "admin", "default")
        await connection.execute(OLD_KEY, "ci", "member", "1" * 64, "ann", "vision")
        await connection.execute("UPDATE api_keys SET revoked_at = now() WHERE name = 'ci'")
        await connection.execute(OLD_KEY, "ci", "member", "2" * 64, "ann", "vision")
        await connection.execute(
            "INSERT INTO endpoints (id, name, spec, replicas, created_by, owner, project)"
            " VALUES (gen_random_uuid(), 'm', '{}', 0, 't', 'bob', 'speech')"
        )
        await migrate(empty_database)
        await connection.execute(OLD_KEY, "late", "member", "3" * 64, "cy", "robots")
        users = await connection.fetch("SELECT name, platform_role FROM users ORDER BY name")
        others = [("ann", None), ("bob", None), ("cy", None)]
        assert [tuple(row) for row in users] == [("admin", "admin"), *others]
        projects = await connection.fetch("SELECT name FROM projects ORDER BY name")
        assert [row["name"] for row in projects] == ["default", "robots", "speech", "vision"]
        members = await connection.fetch(
            "SELECT project, user_name, role FROM memberships ORDER BY project"
        )
        assert [tuple(row) for row in members] == [
            ("robots", "cy", "member"),
            ("vision", "ann", "member"),
        ]
        kept = await connection.fetch("SELECT sha256, kept_priority FROM api_keys ORDER BY sha256")
        assert [row["kept_priority"] for row in kept] == [100, None, 100, None]
        assert await connection.fetchval("SELECT shared_with FROM endpoints") == ["*"]
        assert (
            await connection.fetchval("SELECT project FROM model_names WHERE name = 'm'")
            == "speech"
        )
    finally:
        await connection.close()

    async with open_store(empty_database) as store:
        roles = {digit: await store.keys.find(digit * 64) for digit in "0123"}

    assert {digit: key and (key.role, key.owner.project) for digit, key in roles.items()} == {
        "0": (Role.ADMIN, "default"),
        "1": None,
        "2": (Role.MEMBER, "vision"),
        "3": (Role.MEMBER, "robots"),
    }


OLD_TEMPLATE = """
INSERT INTO templates (project, name, version, body, bases, created_by) VALUES ($1, $2, 1, '{}', $3, $4)
"""


async def test_templates_of_before_are_free_of_isolation_only_if_an_administrator_wrote_them(
    empty_database: str,
) -> None:
    """Whoever has the name of a key today may not be who had it when the template was written."""
    await migrate(empty_database, "202611271115")
    connection = await asyncpg.connect(empty_database)
    try:
        for number, (name, role) in enumerate(
            (("root", "admin"), ("ann", "member"), ("reused", "member"))
        ):
            await connection.execute(OLD_KEY, name, role, str(number) * 64, name, "vision")

        await connection.execute("UPDATE api_keys SET revoked_at = now() WHERE name = 'reused'")
        await connection.execute(OLD_KEY, "reused", "admin", "3" * 64, "root", "vision")
        written = (
            *(("", "for-all", [], "key:gone"), ("vision", "of-admin", [], "key:root")),
            *(
                ("vision", "of-console", [], "user:root"),
                ("vision", "based", ["of-ann@1"], "key:root"),
            ),
            *(("vision", "of-ann", [], "key:ann"), ("vision", "of-page", [], "user:ann")),
            *(("vision", "of-gone", [], "key:gone"), ("vision", "of-reused", [], "key:reused")),
        )
        for row in written:
            await connection.execute(OLD_TEMPLATE, *row)

        await connection.execute(OLD_KEY, "later", "admin", "4" * 64, "root", "vision")
        await connection.execute(
            "INSERT INTO templates SELECT project, 'of-later', version, body, bases, created_at, 'key:later'"
            " FROM templates WHERE name = 'of-gone'"
        )
        await migrate(empty_database)
        free = await connection.fetch("SELECT name FROM templates WHERE NOT isolated ORDER BY name")
        assert [row["name"] for row in free] == ["for-all", "of-admin", "of-console"]
        with pytest.raises(asyncpg.RaiseError, match="never changes"):
            await connection.execute("UPDATE templates SET isolated = false")

        await connection.execute(OLD_TEMPLATE, "vision", "of-the-release-before", [], "key:root")
        assert await connection.fetchval(
            "SELECT isolated FROM templates WHERE name = 'of-the-release-before'"
        )
    finally:
        await connection.close()
