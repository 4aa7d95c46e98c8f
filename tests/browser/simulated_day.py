"""A past day of a real platform, for the console's charts, in minutes.

Real sessions start, wait and end, faster than in life; the manager's own statement samples them. It
reads the time from ``now()``, and here a schema before ``pg_catalog`` has a function of that name.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import asyncpg

from moorage.common.model.spec import SessionSpec
from moorage.manager.postgres import running_dsn
from moorage.manager.store.database.queries import SQL
from moorage.sdk import Client
from tests.e2e.harness import Platform, until

STEP_MIN = 10
_MOVING = """
SELECT count(*) FROM sessions
WHERE status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'TERMINATING')
"""
_CLOCK = """
CREATE SCHEMA IF NOT EXISTS past;
CREATE OR REPLACE FUNCTION past.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT pg_catalog.now() - pg_catalog.current_setting('past.ago')::interval $$;
SET search_path = past, public, pg_catalog;
"""


async def live_a_day(platform: Platform, hours: int, people: int = 1) -> None:
    """The last ``hours`` hours: quiet at first, and for some time more work than the GPUs of three
    nodes can do for each of ``people``."""
    rng = Random(7)
    steps = hours * 60 // STEP_MIN
    running: list[str] = []
    async with platform.client() as client, sampler(platform) as samples:
        for step in range(steps):
            await work(client, running, people * wanted(step / steps, rng), rng)
            for minute in range(STEP_MIN):
                await samples.take((steps - step) * STEP_MIN - minute)

        for name in running:
            await client.sessions.stop(name)
        await samples.settle()


def wanted(passed: float, rng: Random) -> int:
    """How many sessions people want, when this fraction of the time has passed."""

    def peak(at: float, height: float) -> float:
        return height * math.exp(-(((passed - at) / 0.09) ** 2))

    return max(0, round(2 + 4 * passed + peak(0.5, 5) + peak(0.86, 10) + rng.gauss(0, 1)))


async def work(client: Client, running: list[str], count: int, rng: Random) -> None:
    """Stop or start sessions until there are ``count``."""
    while len(running) > count:
        await client.sessions.stop(running.pop(rng.randrange(len(running))))
    while len(running) < count:
        gpus = rng.choice((1, 1, 2, 2, 4))
        resources = {"cpu": 2 * gpus, "mem": f"{8 * gpus}GiB", "cuda.device": gpus}
        spec = SessionSpec(command=["sleep", "1d"], runtime="fake", resources=resources)
        running.append((await client.sessions.create(spec)).id)


class Sampler:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def settle(self) -> None:
        """Wait until every session waits, runs or has ended."""

        async def still() -> bool:
            return await self._connection.fetchval(_MOVING) == 0

        await until("sessions have started and stopped", still, 20)

    async def take(self, minutes_ago: int) -> None:
        """Record the present state as that of a past minute."""
        await self.settle()
        await self._connection.execute(
            "SELECT set_config('past.ago', $1, false)", f"{minutes_ago} minutes"
        )
        term = await self._connection.fetchval("SELECT term FROM leases WHERE name = 'leader'")
        await self._connection.fetch(SQL["occupancy_record"], term)


@asynccontextmanager
async def sampler(platform: Platform) -> AsyncIterator[Sampler]:
    """Records samples in the platform's own database."""
    dsn = await asyncio.to_thread(running_dsn, platform.home / "postgres")
    assert dsn is not None, "the manager runs it"
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_CLOCK)
        yield Sampler(connection)
    finally:
        await connection.close()
