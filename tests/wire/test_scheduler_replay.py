"""The decision log of a real manager with simulated agents, through ``scheduler log`` and
``scheduler replay``."""

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
from moorage.common.model.group_options import GroupOptions, PreemptionOptions
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Status
from moorage.common.views.keys import KeySpec
from moorage.manager import Manager
from moorage.manager.decision_log import Segment, SegmentReader, Writer
from moorage.manager.scheduling import Plan
from moorage.sdk import ApiError, Client
from moorage.server.commands import scheduler  # noqa: F401 - registers its commands

CLOCK = SystemClock()
NAMES = [f"s{number}" for number in range(12)]


@dataclass
class Platform:
    client: Client
    url: str
    key: str
    dsn: str

    async def moorage(self, *arguments: str) -> tuple[int, str, str]:
        """In a thread, because the command runs its own event loop."""
        command = ["scheduler", *arguments, "--url", self.url]
        runner = CliRunner(env={"MOORAGE_API_KEY": self.key, "MOORAGE_INSECURE_LOOPBACK": "1"})
        result = await asyncio.to_thread(runner.invoke, app, command, catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    async def json(self, *arguments: str) -> Any:
        code, out, err = await self.moorage(*arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    async def run_sessions(self) -> None:
        """Run large and small sessions in turn on four GPUs, where most of them wait. Returns when
        they have ended and the log has all of them."""
        for number, name in enumerate(NAMES):
            gpus, run_s = (4, 0.3) if number % 3 == 0 else (1, 0.6)
            spec = {
                "name": name, "command": ["x"], "resources": {"cuda.device": gpus},
                "env": {"SIM_RUN_S": str(run_s)}, "timeout_s": 2, "stop_grace_s": 1,
            }  # fmt: skip
            await self.client.sessions.create(SessionSpec.model_validate(spec))

        for name in NAMES:
            while (await self.client.sessions.get(name)).status not in TERMINAL:
                await asyncio.sleep(0.05)

        ids = {(await self.client.sessions.get(name)).id for name in NAMES}
        while not ids <= await self.logged_starts():
            await asyncio.sleep(0.1)

    async def logged_starts(self) -> set[str]:
        """Sessions whose start is recorded in the log."""
        now = CLOCK.now()
        reader = SegmentReader()
        page = await self.client.decisions.page("default", now - timedelta(minutes=9), now)
        bodies = [base64.b64decode(segment.body) for segment in page.items]
        return {
            place.session_id for body in bodies for one in reader.read(body) for place in one.places
        }


@pytest_asyncio.fixture
async def platform(migrated_database: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with manager_with_fleet(migrated_database, tmp_path, within_s=110) as (client, url, key):
        yield Platform(client, url, key, migrated_database)


async def test_log_verification_and_replay_of_real_sessions(platform: Platform) -> None:
    await platform.run_sessions()

    log = await platform.json("log", "--last", "5m", "--limit", "1000")
    placed = [session for one in log["passes"] for session in one.get("places", {})]
    ids = {name: (await platform.client.sessions.get(name)).id for name in NAMES}
    assert sorted(placed) == sorted(ids.values()), "each once: no plan was out of date"
    assert any(one["held"].get("insufficient-resources") for one in log["passes"])
    assert all(one["duration_ms"] > 0 and one["pending"] >= one["placed"] for one in log["passes"])
    code, out, _ = await platform.moorage("log", "--limit", "3")
    assert (code, len(out.splitlines())) == (0, 4)

    verified = await platform.json("replay", "--verify")
    assert (verified["places"], verified["differences"]) == (len(NAMES), [])
    assert verified["passes"] == len(log["passes"])

    replayed = await platform.json(
        "replay", "--policy", "strict", "--policy", "hol=skip max_bypasses=none"
    )
    assert replayed["sessions"] == len(NAMES)
    policies = replayed["policies"]
    assert list(policies) == ["observed", "recorded", "strict", "hol=skip max_bypasses=none"]
    observed, recorded, strict = (policies[name] for name in ("observed", "recorded", "strict"))
    waits = []
    for name in NAMES:
        history = await platform.client.sessions.history(name)
        waits.append((history[1].at - history[0].at).total_seconds())

    assert observed["mean_wait"] == pytest.approx(sum(waits) / len(waits), abs=0.001)
    assert observed["max_wait"] == pytest.approx(max(waits), abs=0.001)

    # The simulation spends no time on planning, on starting and on reporting an exit; everything
    # else is the same.
    assert 0 < recorded["mean_wait"] <= observed["mean_wait"] + 0.1
    assert recorded["mean_wait"] == pytest.approx(observed["mean_wait"], abs=1.5)
    assert strict["bypasses"] == 0
    assert observed["unstarted"] == recorded["unstarted"] == 0
    code, out, err = await platform.moorage("replay", "--policy", "strict")
    first_column = [line.split("  ")[0] for line in out.splitlines()]
    assert first_column == [
        "POLICY",
        "observed",
        "recorded",
        "strict",
        "MEAN WAIT OF",
        "all",
        "admin",
    ]
    assert "12 sessions from" in err


async def test_preemption_and_what_if_questions(platform: Platform) -> None:
    """On four GPUs, low has all of them, and urgent stops it."""
    client = platform.client
    await client.groups.update("default", GroupOptions(preemption=PreemptionOptions()))

    async def create(name: str, priority: int, run_s: float) -> None:
        spec = {
            "name": name, "command": ["x"], "resources": {"cuda.device": 4}, "priority": priority,
            "env": {"SIM_RUN_S": str(run_s)}, "stop_grace_s": 1,
        }  # fmt: skip
        await client.sessions.create(SessionSpec.model_validate(spec))

    await create("low", 10, 1.5)
    while (await client.sessions.get("low")).status is not Status.RUNNING:
        await asyncio.sleep(0.05)

    await create("urgent", 50, 0.3)
    for name in ("urgent", "low"):
        while (await client.sessions.get(name)).status not in TERMINAL:
            await asyncio.sleep(0.05)

    ids = {name: (await client.sessions.get(name)).id for name in ("low", "urgent")}
    while set(ids.values()) - await platform.logged_starts():
        await asyncio.sleep(0.1)

    verified = await platform.json("replay", "--verify")
    assert (verified["victims"], verified["differences"]) == (1, [])
    replayed = await platform.json("replay", "--policy", "preemption=none", "--add-gpus", "4")
    policies = replayed["policies"]
    assert replayed["sessions"] == 2, "the preempted session is one, with two attempts"
    assert {name: each["preemptions"] for name, each in policies.items()} == {
        "observed": 1, "recorded": 1, "preemption=none": 0, "changed": 0,
    }  # fmt: skip
    waits = {name: each["all"]["mean_wait"] for name, each in replayed["waits"].items()}
    assert waits["changed"] < waits["recorded"]
    assert replayed["waits"]["changed"]["admin"]["sessions"] == 2
    limited = await platform.json("replay", "--quota", "user admin cuda.device=2")
    assert limited["policies"]["changed"]["unstarted"] == 2
    code, _, err = await platform.moorage("replay", "--quota", "group other cpu=1")
    assert (code, "group 'default' is simulated" in err) == (2, True), err


async def test_verification_finds_a_place_that_the_planner_would_not_give(
    platform: Platform,
) -> None:
    await platform.run_sessions()
    connection = await asyncpg.connect(platform.dsn)
    rows = await connection.fetch("SELECT id, body, whole FROM decisions ORDER BY id")
    reader = SegmentReader()
    writer = Writer("default")
    decisions = [one for row in rows for one in reader.read(row["body"])]
    falsified = next(one for one in decisions if one.places)
    delta = writer.note(
        falsified.snapshot,
        falsified.policy,
        Plan(falsified.places[1:], ()),
        falsified.at,
        took=1,
        placed=0,
    )
    assert delta is not None
    segment = Segment(
        falsified.at,
        falsified.at,
        whole=True,
        passes=1,
        dropped=0,
        body=b"".join(writer.write([delta], {})),
    )
    await connection.execute("DELETE FROM decisions WHERE id <> $1", rows[0]["id"])
    await connection.execute(
        "UPDATE decisions SET body = $1, size = $2, whole = true, passes = 1",
        segment.body,
        len(segment.body),
    )
    await connection.close()
    code, out, _ = await platform.moorage("replay", "--verify")
    assert code == 1
    assert "1 passes with" in out
    assert "1 differences" in out
    assert falsified.places[0].session_id in out


async def test_time_spans_access_and_gaps(platform: Platform) -> None:
    code, _, err = await platform.moorage("log")
    assert (code, "no decisions of group default are kept" in err) == (3, True)
    await platform.run_sessions()
    code, _, err = await platform.moorage(
        "log", "--from", "2020-01-01T00:00", "--to", "2020-01-02T00:00"
    )
    assert code == 3
    assert "no decisions of group default" in err
    assert "the log has 20" in err
    code, _, err = await platform.moorage("log", "--group", "nobody")
    assert (code, "nobody" in err) == (3, True)
    code, _, err = await platform.moorage("log", "--last", "2h")
    assert (code, "the log begins at" in err) == (0, True)
    now = CLOCK.now()
    for call in (platform.client.decisions.page, platform.client.decisions.runs):
        with pytest.raises(ApiError, match="after to") as caught:
            await call("default", now, now - timedelta(seconds=1))

        assert caught.value.status == 422
        with pytest.raises(ApiError) as caught:
            await call("nobody", now, now)

        assert caught.value.status == 404
    with pytest.raises(ApiError, match="cursor"):
        await platform.client.decisions.page("default", now, now, cursor="mine")
    with pytest.raises(ApiError, match="cursor"):
        await platform.client.decisions.runs("default", now, now).page("mine")

    peer = (await platform.client.keys.create(KeySpec(name="ann"))).secret
    async with Client(platform.url, peer) as ann:
        for call in (ann.decisions.page, ann.decisions.runs):
            with pytest.raises(ApiError, match="requires 'auditor'") as caught:
                await call("default", now, now)
            assert caught.value.status == 403

    # A gap appears in its place.
    connection = await asyncpg.connect(platform.dsn)
    await connection.execute(
        "UPDATE decisions SET dropped = 7 WHERE id = (SELECT max(id) FROM decisions)"
    )
    count = await connection.fetchval("SELECT count(*) FROM decisions")
    await connection.close()
    assert count > 1
    log = await platform.json("log", "--limit", "1000")
    assert [
        one["passes_not_recorded"] for one in log["passes"] if "passes_not_recorded" in one
    ] == [7]
    _, _, err = await platform.moorage("replay")
    assert "7 passes in 1 gaps were not recorded" in err


@pytest.mark.parametrize("days", [0, 1])
async def test_retention_of_zero_days_keeps_nothing(
    migrated_database: str, tmp_path: Path, days: int
) -> None:
    """With a longer retention, everything has been written by the time the manager exits, at the
    latest."""
    settings = ManagerSettings(
        dsn=migrated_database,
        listen="127.0.0.1:0",
        link_listen="127.0.0.1:0",
        decisions_kept_days=days,
    )
    async with Manager(settings, clock=CLOCK, link_token=h.TOKEN, home=tmp_path) as manager:
        assert manager.first_key is not None
        async with (
            Client(f"http://{manager.api_address}", manager.first_key) as client,
            asyncio.timeout(30),
        ):
            await client.sessions.create(SessionSpec(command=["x"], name="waits"))
            while (await client.sessions.get("waits")).hold is None:
                await asyncio.sleep(0.02)

    connection = await asyncpg.connect(migrated_database)
    count = await connection.fetchval("SELECT count(*) FROM decisions")
    await connection.close()
    assert bool(count) == bool(days)
