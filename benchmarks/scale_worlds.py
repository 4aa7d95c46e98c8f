"""Databases of the scale benchmark: agents, sessions, endpoints and a queue, filled by SQL in
bulk."""

from __future__ import annotations

import json
from dataclasses import dataclass

import asyncpg

from moorage.common.model.serving import Autoscale
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.manager.store.endpoints.rows import spec_columns

_USERS = 100
_SHAPES = 20  # different requests of the pending sessions
_SPEC = SessionSpec(name="scale", command=["sleep", "1000000"])


@dataclass(frozen=True)
class World:
    """``full``: the agents have no capacity left, so that no pending session can start. ``quotas``:
    all users' quotas are used up. ``named``: how many of the pending sessions name their agent.
    ``waiting``: how many replicas have no place yet. ``ended``: sessions that ended a day ago."""

    agents: int = 100
    running: int = 0
    endpoints: int = 0
    replicas: int = 20
    pending: int = 0
    full: bool = False
    quotas: bool = False
    named: int = 0
    waiting: int = 0
    ended: int = 0


# Ids are ordered by age, as those of a manager are.
SCALE_ID = """
CREATE OR REPLACE FUNCTION scale_id(kind text, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT overlay(md5(kind) PLACING lpad(to_hex(n), 12, '0') FROM 1 FOR 12)::uuid
$$
"""
AGENTS = """
INSERT INTO agents (id, resource_group, status, identity, incarnation, stream, address, version, arch,
                    runtimes, engines)
SELECT 'node-' || n, 'default', 'ALIVE', 'i', 'i', 1, '127.0.0.1', '1', 'x86_64', '{process}', '{custom,vllm}'
FROM generate_series(1, $1) n
"""
ENDPOINTS = """
INSERT INTO endpoints (id, name, spec, replicas, created_by, owner, serving)
SELECT scale_id('e', n), 'model-' || n, $2::jsonb || jsonb_build_object('name', 'model-' || n), $3,
       'scale', 'user-' || n % 100, $4::jsonb
FROM generate_series(1, $1) n
"""
# A trigger writes the first revision, but does not run here.
REVISIONS = """
INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_by, completed_at)
SELECT id, 1, (spec || serving) - 'name' - 'replicas' - 'autoscale' - 'rollout', created_by, now()
FROM endpoints
"""
# A proxy reports, and there are no requests.
PROXY = """
INSERT INTO proxy_reports (proxy_id, incarnation, routes_generation, at)
VALUES ('proxy-1', 'i', 1, now() + interval '1 hour')
"""
MODEL_LOADS = """
INSERT INTO model_loads (proxy_id, model, in_flight, waiting, requests, active_at, changed_at)
SELECT 'proxy-1', name, 0, 0, 1000, now(), now() - interval '1 hour' FROM endpoints
"""
ENGINE_LOADS = """
INSERT INTO engine_loads (kernel_id, running, waiting, kv_cache, changed_at)
SELECT k.id, 0, 0, 0, now() - interval '1 hour' FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE s.endpoint_id IS NOT NULL
"""
# $1: a prefix, $2: how many, $3: type, $4: the spec, $5: replicas per endpoint, or NULL.
RUNNING = """
INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, endpoint_id, created_by,
                      owner, deadline_at, ready_at, revision)
SELECT scale_id($1, n), $1 || n, $3, 'RUNNING', 'default', 10, $4::jsonb, '{"cpu": 1000, "mem": 1073741824}',
       scale_id('e', (n - 1) / $5 + 1), 'scale', 'user-' || n % 100,
       CASE WHEN n % 2 = 0 THEN now() + interval '1 day' END, now(), 5
FROM generate_series(1, $2) n
"""
KERNELS = """
INSERT INTO kernels (id, session_id, attempt, status, agent_id, secret, host, port, observed)
SELECT scale_id('k' || $1, n), scale_id($1, n), 1, 'RUNNING', 'node-' || n % $3 + 1, 's', '127.0.0.1',
       CASE WHEN $4 THEN 20000 + n / $3 ELSE 0 END, 'RUNNING'
FROM generate_series(1, $2) n
"""
WAITING = """
WITH waiting AS (SELECT scale_id($1, n) AS id FROM generate_series(1, $2) n), moved AS (
    UPDATE sessions s SET status = 'PENDING', ready_at = NULL, deadline_at = NULL
    FROM waiting w WHERE s.id = w.id
)
UPDATE kernels k SET status = 'PENDING', agent_id = NULL, host = '', port = 0, observed = NULL
FROM waiting w WHERE k.session_id = w.id
"""
# After the slots: these refer to them.
ALLOCATIONS = """
INSERT INTO allocations (kernel_id, agent_id, slot, device_id, amount)
SELECT k.id, k.agent_id, s.slot, '', s.amount
FROM kernels k, (VALUES ('cpu', 1000), ('mem', 1073741824)) s(slot, amount)
WHERE k.status = 'RUNNING'
"""
USAGE = """
INSERT INTO kernel_usage (kernel_id, at, cpu, memory)
SELECT id, now() + interval '1 hour', 100, 1048576 FROM kernels WHERE status = 'RUNNING'
"""
SLOTS = """
INSERT INTO agent_slots (agent_id, slot, offered, capacity, used)
SELECT 'node-' || n, s.slot, greatest(u.used, CASE WHEN $2 THEN 0 ELSE 1::bigint << 50 END),
       greatest(u.used, CASE WHEN $2 THEN 0 ELSE 1::bigint << 50 END), u.used
FROM generate_series(1, $1) n, (VALUES ('cpu', 1000), ('mem', 1073741824)) s(slot, amount),
     LATERAL (SELECT count(*) * s.amount AS used FROM kernels k
              WHERE k.agent_id = 'node-' || n AND k.status = 'RUNNING') u
"""
# Every tenth is in backoff for another hour; every fourth has an estimate of when it may start.
PENDING = """
INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, created_by, owner,
                      created_at, status_since, not_before)
SELECT scale_id('p', n), 'p' || n, 'batch', 'PENDING', 'default', n % 10,
       CASE WHEN n <= $4 THEN $2::jsonb || '{"agents": ["node-1"]}' ELSE $2::jsonb END,
       jsonb_build_object('cpu', 1000 * (n % $3 + 1), 'mem', 1073741824), 'scale', 'user-' || n % 100,
       now() - n * interval '1 ms', now() - n * interval '1 ms',
       CASE WHEN n % 10 = 0 THEN now() + interval '1 hour' END
FROM generate_series(1, $1) n
"""
PENDING_KERNELS = """
INSERT INTO kernels (id, session_id, attempt, status, secret)
SELECT scale_id('kp', n), scale_id('p', n), 1, 'PENDING', 's' FROM generate_series(1, $1) n
"""
ENDED = """
INSERT INTO sessions (id, name, type, status, result, resource_group, priority, spec, slots,
                      created_by, owner, created_at, status_since, revision)
SELECT scale_id('x', n), 'x' || n, 'batch', 'TERMINATED', 'SUCCESS', 'default', 10, $2::jsonb,
       '{"cpu": 1000, "mem": 1073741824}', 'scale', 'user-' || n % 100,
       now() - interval '1 day' - n * interval '1 s', now() - interval '1 day' - n * interval '1 s', 5
FROM generate_series(1, $1) n
"""
ENDED_KERNELS = """
INSERT INTO kernels (id, session_id, attempt, status, status_since, agent_id, secret)
SELECT scale_id('kx', n), scale_id('x', n), 1, 'TERMINATED', now() - interval '1 day' - n * interval '1 s',
       'node-' || n % $2 + 1, 's'
FROM generate_series(1, $1) n
"""
EXPECTED = """
INSERT INTO expected_starts (session_id, attempt, expected_at, kind, resource_group)
SELECT scale_id('p', 4 * n), 1, now() + interval '1 hour', 'reservation', 'default'
FROM generate_series(1, $1::int / 4) n
"""


QUOTAS = """
WITH users_added AS (
    INSERT INTO users (name) SELECT 'user-' || n FROM generate_series(0, $1 - 1) n
    ON CONFLICT DO NOTHING
)
INSERT INTO quotas (scope, name, slots, sessions, changed_by)
SELECT 'user', 'user-' || n, '{"cpu": 0}', 0, 'scale' FROM generate_series(0, $1 - 1) n
"""


async def fill(dsn: str, world: World, *, vacuum: bool = True) -> None:
    """Fill a migrated database. ``vacuum``: leave it as autovacuum would."""
    connection = await asyncpg.connect(dsn, command_timeout=3600)
    try:
        # Foreign keys hold by construction; checking each would take most of the time.
        await connection.execute(
            "SET session_replication_role = replica; SET synchronous_commit = off"
        )
        await connection.execute(SCALE_ID)
        await connection.execute(AGENTS, world.agents)
        await _running(
            connection,
            "r",
            world.running,
            "batch",
            spec=_SPEC.model_dump_json(),
            agents=world.agents,
        )

        if world.endpoints:
            scale = Autoscale(min=world.replicas, max=2 * world.replicas, running=8)
            spec = EndpointSpec(
                name="model",
                model="scale/model",
                engine="vllm",
                replicas=world.replicas,
                autoscale=scale,
            )
            stored, serving = map(json.dumps, spec_columns(spec))
            await connection.execute(ENDPOINTS, world.endpoints, stored, world.replicas, serving)
            for statement in (REVISIONS, PROXY, MODEL_LOADS):
                await connection.execute(statement)

            count = world.endpoints * world.replicas
            one = json.dumps(spec.session("replica").model_dump(mode="json"))
            await _running(
                connection,
                "s",
                count,
                "inference",
                spec=one,
                agents=world.agents,
                replicas=world.replicas,
            )
            await connection.execute(WAITING, "s", world.waiting)
            await connection.execute(ENGINE_LOADS)

        if world.pending:
            await connection.execute(
                PENDING, world.pending, _SPEC.model_dump_json(), _SHAPES, world.named
            )
            await connection.execute(PENDING_KERNELS, world.pending)
            await connection.execute(EXPECTED, world.pending)

        if world.ended:
            await connection.execute(ENDED, world.ended, _SPEC.model_dump_json())
            await connection.execute(ENDED_KERNELS, world.ended, world.agents)

        if world.quotas:
            await connection.execute(QUOTAS, _USERS)

        await connection.execute(SLOTS, world.agents, world.full)
        await connection.execute(ALLOCATIONS)
        await connection.execute(USAGE)
        await connection.execute("VACUUM ANALYZE" if vacuum else "ANALYZE")
        if vacuum:
            await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _running(
    connection: asyncpg.Connection,
    prefix: str,
    count: int,
    kind: str,
    *,
    spec: str,
    agents: int,
    replicas: int | None = None,
) -> None:
    if count:
        await connection.execute(RUNNING, prefix, count, kind, spec, replicas)
        await connection.execute(KERNELS, prefix, count, agents, kind == "inference")
