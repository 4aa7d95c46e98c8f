"""What a real manager decided about sessions on played agents, asked for through the command line."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import agent_harness as h
import asyncpg
import pytest
import pytest_asyncio
from simulated_fleet import manager_with_fleet
from typer.testing import CliRunner

from moorage.cli import app
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL
from moorage.common.views.keys import KeySpec
from moorage.manager import Manager
from moorage.manager.decision_log import Reader, Segment, Writer
from moorage.manager.scheduling import Plan
from moorage.sdk import ApiError, Client
from moorage.server.commands import scheduler_replay  # noqa: F401 - it registers its commands

CLOCK = SystemClock()
NAMES = [f"s{number}" for number in range(12)]


@dataclass
class World:
    client: Client
    url: str
    key: str
    dsn: str

    async def moorage(self, *words: str) -> tuple[int, str, str]:
        """In a thread, since the command has a loop of its own."""
        where = ["--url", self.url, "--key", self.key]
        call = CliRunner().invoke
        result = await asyncio.to_thread(call, app, ["scheduler", *words, *where], catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    async def answer(self, *words: str) -> Any:
        code, out, err = await self.moorage(*words, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    async def run_some(self) -> None:
        """Large and small ones in turn, on four GPUs: most of them wait. Until they have ended and all of it
        is kept."""
        for number, name in enumerate(NAMES):
            gpus, run = (4, 0.3) if number % 3 == 0 else (1, 0.6)
            asked = {"command": ["x"], "resources": {"cuda.device": gpus}, "name": name}
            more = {"env": {"SIM_RUN_S": str(run)}, "timeout_s": 2, "stop_grace_s": 1}
            await self.client.create_session(SessionSpec.model_validate(asked | more))
        for name in NAMES:
            while (await self.client.get_session(name)).status not in TERMINAL:
                await asyncio.sleep(0.05)
        ids = {(await self.client.get_session(name)).id for name in NAMES}
        while not ids <= await self.told():
            await asyncio.sleep(0.1)

    async def told(self) -> set[str]:
        """Whose places are kept."""
        now, reader = CLOCK.now(), Reader()
        page = await self.client.list_decisions("default", now - timedelta(minutes=9), now)
        bodies = [base64.b64decode(segment.body) for segment in page.items]
        return {place.session_id for body in bodies for one in reader.read(body) for place in one.places}


@pytest_asyncio.fixture
async def world(empty_database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with manager_with_fleet(empty_database, tmp_path, within_s=110) as (client, url, key):
        yield World(client, url, key, empty_database)


async def test_log_verify_and_replay_of_sessions_that_really_ran(world: World) -> None:
    await world.run_some()

    log = await world.answer("log", "--last", "5m", "--limit", "1000")
    placed = [session for one in log["passes"] for session in one.get("places", {})]
    ids = {name: (await world.client.get_session(name)).id for name in NAMES}
    assert sorted(placed) == sorted(ids.values()), "each once, since nothing was out of date"
    assert any(one["held"].get("insufficient-resources") for one in log["passes"])
    assert all(one["took_ms"] > 0 and one["waited"] >= one["placed"] for one in log["passes"])
    code, out, _ = await world.moorage("log", "--limit", "3")
    assert (code, len(out.splitlines())) == (0, 4)

    verified = await world.answer("replay", "--verify")
    assert (verified["places"], verified["differences"]) == (len(NAMES), [])
    assert verified["passes"] == len(log["passes"])

    found = await world.answer("replay", "--policy", "strict", "--policy", "hol=skip max_bypasses=none")
    assert found["sessions"] == len(NAMES)
    policies = found["policies"]
    assert list(policies) == ["as it was", "recorded", "strict", "hol=skip max_bypasses=none"]
    was, again, strict = (policies[name] for name in ("as it was", "recorded", "strict"))
    waits = []
    for name in NAMES:
        history = await world.client.history(name)
        waits.append((history[1].at - history[0].at).total_seconds())
    assert was["mean_wait"] == pytest.approx(sum(waits) / len(waits), abs=0.001)
    assert was["max_wait"] == pytest.approx(max(waits), abs=0.001)
    # What is played takes no time to plan, to start and to tell of an end; else it is the same.
    assert 0 < again["mean_wait"] <= was["mean_wait"] + 0.1
    assert again["mean_wait"] == pytest.approx(was["mean_wait"], abs=1.5)
    assert strict["bypasses"] == 0
    assert was["unstarted"] == again["unstarted"] == 0
    code, out, err = await world.moorage("replay", "--policy", "strict")
    assert [line.split("  ")[0] for line in out.splitlines()] == ["POLICY", "as it was", "recorded", "strict"]
    assert "12 sessions from" in err


async def test_a_place_that_the_planner_would_not_give_is_found(world: World) -> None:
    await world.run_some()
    connection = await asyncpg.connect(world.dsn)
    rows = await connection.fetch("SELECT id, body, whole FROM decisions ORDER BY id")
    reader, writer = Reader(), Writer("default")
    decisions = [one for row in rows for one in reader.read(row["body"])]
    lied = next(one for one in decisions if one.places)
    passed = writer.note(lied.snapshot, lied.policy, Plan(lied.places[1:], ()), lied.at, 1, 0)
    assert passed is not None
    segment = Segment(lied.at, lied.at, True, 1, 0, b"".join(writer.write([passed], {})))
    await connection.execute("DELETE FROM decisions WHERE id <> $1", rows[0]["id"])
    await connection.execute(
        "UPDATE decisions SET body = $1, size = $2, whole = true, passes = 1", segment.body, len(segment.body)
    )
    await connection.close()
    code, out, _ = await world.moorage("replay", "--verify")
    assert code == 1
    assert "1 passes with" in out
    assert "1 differences" in out
    assert lied.places[0].session_id in out


async def test_what_is_kept_and_what_is_asked_for(world: World) -> None:
    code, _, err = await world.moorage("log")
    assert (code, "nothing that was decided in group default is kept" in err) == (3, True)
    await world.run_some()
    code, _, err = await world.moorage("log", "--from", "2020-01-01T00:00", "--to", "2020-01-02T00:00")
    assert code == 3
    assert "nothing was decided in group default" in err
    assert "kept is what was from 20" in err
    code, _, err = await world.moorage("log", "--group", "nobody")
    assert (code, "nobody" in err) == (3, True)
    code, _, err = await world.moorage("log", "--last", "2h")
    assert (code, "is not kept: it begins there" in err) == (0, True)
    now = CLOCK.now()
    for call in (world.client.list_decisions, world.client.list_runs):
        with pytest.raises(ApiError, match="after to") as caught:
            await call("default", now, now - timedelta(seconds=1))
        assert caught.value.status == 422
        with pytest.raises(ApiError) as caught:
            await call("nobody", now, now)
        assert caught.value.status == 404
        with pytest.raises(ApiError, match="cursor"):
            await call("default", now, now, cursor="mine")
    peer = (await world.client.create_key(KeySpec(name="ann"))).secret
    async with Client(world.url, peer) as ann:
        for call in (ann.list_decisions, ann.list_runs):
            with pytest.raises(ApiError, match="needs 'admin'") as caught:
                await call("default", now, now)
            assert caught.value.status == 403
    # A gap is told where it is.
    connection = await asyncpg.connect(world.dsn)
    await connection.execute("UPDATE decisions SET dropped = 7 WHERE id = (SELECT max(id) FROM decisions)")
    count = await connection.fetchval("SELECT count(*) FROM decisions")
    await connection.close()
    assert count > 1
    log = await world.answer("log", "--limit", "1000")
    assert [one["not_kept"] for one in log["passes"] if "not_kept" in one] == [7]
    _, _, err = await world.moorage("replay")
    assert "7 passes in 1 gaps were not kept" in err


@pytest.mark.parametrize("days", [0, 1])
async def test_nothing_is_kept_where_nothing_shall_be(empty_database: str, tmp_path: Path, days: int) -> None:
    """Whatever was noted is written at the latest when the manager ends."""
    settings = ManagerSettings(
        dsn=empty_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0", decisions_kept_days=days
    )
    async with Manager(settings, clock=CLOCK, link_token=h.TOKEN, home=tmp_path) as manager:
        assert manager.first_key is not None
        async with Client(f"http://{manager.api_address}", manager.first_key) as client, asyncio.timeout(30):
            await client.create_session(SessionSpec(command=["x"], name="waits"))
            while (await client.get_session("waits")).hold is None:
                await asyncio.sleep(0.02)
    connection = await asyncpg.connect(empty_database)
    count = await connection.fetchval("SELECT count(*) FROM decisions")
    await connection.close()
    assert bool(count) == bool(days)
