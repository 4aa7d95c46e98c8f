"""Naive implementation of the store's writes, for comparison: one transaction per session and step,
one statement after the other over plain asyncpg, on the same schema."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import asyncpg

from measuring import cpu_s, family
from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec

SPEC = SessionSpec.model_validate({"command": ["true"], "resources": {"cpu": 1, "mem": "64MiB"}})
SPEC_JSON = SPEC.model_dump_json()
TAKES = {"cpu": 1000, "mem": 64 * 1024**2}
AGENTS = 100


class Naive:
    """Uses agents ``naive-N``, whose slots never fill up."""

    def __init__(self, dsn: str, postgres: int) -> None:
        self._dsn = dsn
        self._postgres = postgres
        self._clock = SystemClock()

    async def prepare(self, connection: asyncpg.Connection) -> None:
        for n in range(AGENTS):
            await connection.execute(
                "INSERT INTO agents (id, resource_group, status, incarnation, address, version, arch, "
                "runtimes, engines) VALUES ($1, 'naive', 'ALIVE', 'x', '', '', '', '{}', '{}') "
                "ON CONFLICT DO NOTHING",
                f"naive-{n}",
            )
            for slot in TAKES:
                await connection.execute(
                    "INSERT INTO agent_slots (agent_id, slot, offered, capacity) "
                    "VALUES ($1, $2, 1::bigint << 60, 1::bigint << 60) ON CONFLICT DO NOTHING",
                    f"naive-{n}",
                    slot,
                )

    async def create(self, c: asyncpg.Connection) -> tuple[str, str]:
        session = self._clock.new_id()
        kernel = self._clock.new_id()
        async with c.transaction():
            await c.execute(
                "INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, "
                "created_by, owner) VALUES "
                "($1, $2, 'batch', 'PENDING', 'default', 10, $3, $4, 'naive', 'naive')",
                session, f"naive-{session[-12:]}", SPEC_JSON, json.dumps(TAKES),
            )  # fmt: skip
            await c.execute(
                "INSERT INTO kernels (id, session_id, attempt, status, secret) "
                "VALUES ($1, $2, 1, 'PENDING', 's')",
                kernel, session,
            )  # fmt: skip
            await self._add_history(c, session, 1, "created", old=None, new="PENDING")

        return session, kernel

    async def place(self, c: asyncpg.Connection, session: str, kernel: str, agent: str) -> None:
        async with c.transaction():
            await self._step(c, session, 2, "placed", old="PENDING", new="SCHEDULED")
            await c.execute(
                "UPDATE kernels SET status = 'SCHEDULED', agent_id = $2 WHERE id = $1",
                kernel,
                agent,
            )
            for slot, amount in TAKES.items():
                await c.execute(
                    "INSERT INTO allocations (kernel_id, agent_id, slot, amount) VALUES ($1, $2, $3, $4)",
                    kernel, agent, slot, amount,
                )  # fmt: skip
                await c.execute(
                    "UPDATE agent_slots SET used = used + $3 WHERE agent_id = $1 AND slot = $2",
                    agent, slot, amount,
                )  # fmt: skip

    async def observe(self, c: asyncpg.Connection, kernel: str, status: str, agent: str) -> None:
        async with c.transaction():
            await c.execute("UPDATE agents SET last_seen = now() WHERE id = $1", agent)
            await c.fetchrow("SELECT * FROM kernels WHERE id = $1 FOR UPDATE", kernel)
            await c.execute("UPDATE kernels SET status = $2 WHERE id = $1", kernel, status)

    async def move(
        self, c: asyncpg.Connection, session: str, revision: int, old: str, *, new: str
    ) -> None:
        async with c.transaction():
            await self._step(c, session, revision, "moved", old=old, new=new)

    async def release(self, c: asyncpg.Connection, kernel: str) -> None:
        async with c.transaction():
            for row in await c.fetch(
                "UPDATE allocations SET released_at = now() WHERE kernel_id = $1 AND released_at IS NULL "
                "RETURNING agent_id, slot, amount",
                kernel,
            ):
                await c.execute(
                    "UPDATE agent_slots SET used = used - $3 WHERE agent_id = $1 AND slot = $2",
                    *row,
                )

    async def end(self, c: asyncpg.Connection, kernel: str, agent: str) -> None:
        await self.observe(c, kernel, "TERMINATED", agent)
        await self.release(c, kernel)

    async def _step(
        self, c: asyncpg.Connection, session: str, revision: int, event: str, *, old: str, new: str
    ) -> None:
        await c.fetchrow("SELECT * FROM sessions WHERE id = $1 FOR UPDATE", session)
        await c.execute(
            "UPDATE sessions SET status = $2, revision = $3, status_since = now() WHERE id = $1",
            session, new, revision,
        )  # fmt: skip
        await self._add_history(c, session, revision, event, old=old, new=new)

    async def _add_history(
        self,
        c: asyncpg.Connection,
        session: str,
        revision: int,
        event: str,
        *,
        old: str | None,
        new: str,
    ) -> None:
        await c.execute(
            "INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor) "
            "VALUES ($1, $2, $3, $4, $5, 'naive')",
            session, revision, event, old, new,
        )  # fmt: skip

    async def life(self, c: asyncpg.Connection, agent: str) -> None:
        session, kernel = await self.create(c)
        await self.place(c, session, kernel, agent)
        await self.observe(c, kernel, "RUNNING", agent)
        await self.move(c, session, 3, "SCHEDULED", new="RUNNING")
        await self.end(c, kernel, agent)
        await self.move(c, session, 4, "RUNNING", new="TERMINATED")

    async def lives(self, seconds: float, connections: int = 8) -> dict[str, Any]:
        """Run complete sessions for this many seconds. Returns sessions per second, and CPU µs per
        session of the client and of Postgres."""
        pool = [await asyncpg.connect(self._dsn) for _ in range(connections)]
        await self.prepare(pool[0])
        done = 0
        until = time.perf_counter() + seconds

        async def one(number: int) -> None:
            nonlocal done
            agent = number
            while time.perf_counter() < until:
                agent = (agent + connections) % AGENTS
                await self.life(pool[number], f"naive-{agent}")
                done += 1

        start = time.perf_counter()
        client = cpu_s(os.getpid())
        server = sum(map(cpu_s, family(self._postgres)))
        await asyncio.gather(*(one(n) for n in range(connections)))
        elapsed = time.perf_counter() - start
        client = cpu_s(os.getpid()) - client
        server = sum(map(cpu_s, family(self._postgres))) - server
        for connection in pool:
            await connection.close()

        return {
            "sessions": done,
            "per_s": done / elapsed,
            "cpu_us": 1e6 * client / done,
            "postgres_us": 1e6 * server / done,
        }
