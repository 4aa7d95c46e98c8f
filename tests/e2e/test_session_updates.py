"""Holding, requeuing and suspending sessions through the real commands, with restarts of the agent
and the manager in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import SessionView

from .harness import Platform, kernels_below, until

SMALL = {"cpu": "0.1", "mem": "16MiB"}


async def moorage(platform: Platform, *arguments: str) -> str:
    result = await asyncio.to_thread(platform.run, *arguments)
    assert result.returncode == 0, result.stderr
    return str(result.stdout)


async def session(platform: Platform, name: str) -> SessionView:
    async with platform.client() as client:
        return await client.sessions.get(name)


async def reaches(platform: Platform, name: str, *statuses: Status) -> SessionView:
    async def has() -> bool:
        return (await session(platform, name)).status in statuses

    await until(f"{name} is {' or '.join(statuses)}", has)
    return await session(platform, name)


def ticks(file: Path) -> int:
    return len(file.read_text()) if file.exists() else 0


async def goes_on(file: Path) -> None:
    before = ticks(file)

    async def more() -> bool:
        return ticks(file) > before + 2

    await until("the program goes on", more)


async def stands_still(file: Path) -> None:
    async def still() -> bool:
        before = ticks(file)
        await asyncio.sleep(0.6)
        return ticks(file) == before

    await until("the program stands still", still)


def ticking(file: Path, end: str = "") -> list[str]:
    """A program whose child writes a character every 50 ms."""
    handler = f"trap 'echo {end} >>\"{file}.end\"; kill $!; exit 0' TERM; " if end else ""
    loop = f'while :; do printf . >>"{file}"; sleep 0.05; done'
    return ["/bin/sh", "-c", f"{handler}( {loop} ) & wait"]


@pytest.mark.timeout(240)
async def test_a_suspended_program_stands_still_until_it_is_resumed(platform: Platform) -> None:
    platform.start("manager")
    platform.start("agent")
    await platform.wait_until_ready()
    file = platform.home / "ticks"
    async with platform.client() as client:
        await client.sessions.create(
            SessionSpec(name="train", command=ticking(file), resources=SMALL, timeout_s=600)
        )
    await reaches(platform, "train", Status.RUNNING)
    await goes_on(file)

    assert "train suspended" in await moorage(platform, "suspend", "train")
    await stands_still(file)
    shown = await moorage(platform, "describe", "train")
    assert "it keeps its resources" in shown
    assert "suspended by" in await moorage(platform, "ps")
    assert (await session(platform, "train")).deadline_at is None

    platform.kill("agent")
    platform.start("agent")
    platform.kill("manager")
    platform.start("manager")
    await platform.wait_until_ready()
    await stands_still(file)
    view = await session(platform, "train")
    assert (view.status, view.suspended is not None) == (Status.RUNNING, True)

    await moorage(platform, "resume", "train")
    await goes_on(file)
    view = await session(platform, "train")
    assert view.deadline_at is not None

    await moorage(platform, "suspend", "train")
    await stands_still(file)
    platform.kill("agent")
    await moorage(platform, "resume", "train")  # while nobody can carry it out
    platform.start("agent")
    await goes_on(file)


@pytest.mark.timeout(240)
async def test_suspended_sessions_end_and_run_again_like_others(one_node: Platform) -> None:
    platform = one_node
    file = platform.home / "ticks-again"
    async with platform.client() as client:
        await client.sessions.create(
            SessionSpec(
                name="again", command=ticking(file, "gently"), resources=SMALL, stop_grace_s=10
            )
        )
    await reaches(platform, "again", Status.RUNNING)
    await goes_on(file)
    await moorage(platform, "suspend", "again")
    await stands_still(file)

    assert "again requeued" in await moorage(platform, "requeue", "again")

    async def second() -> bool:
        view = await session(platform, "again")
        return view.status is Status.RUNNING and view.attempt == 2

    await until("its second attempt runs", second)
    assert Path(f"{file}.end").read_text() == "gently\n", "it was stopped in the ordinary way"
    view = await session(platform, "again")
    assert (view.requeues, view.suspended) == (0, None)
    assert len([name for name in kernels_below(platform.home).values()]) >= 1
    await goes_on(file)
    await moorage(platform, "suspend", "again")
    await stands_still(file)
    await moorage(platform, "stop", "again")
    assert Path(f"{file}.end").read_text() == "gently\n" * 2
    refused = await asyncio.to_thread(platform.run, "requeue", "again")
    assert (refused.returncode, "submit it again" in refused.stderr) == (1, True), refused.stderr


@pytest.mark.timeout(120)
async def test_a_held_session_starts_when_it_is_released(one_node: Platform) -> None:
    platform = one_node
    async with platform.client() as client:
        await client.sessions.create(
            SessionSpec(name="first", command=["sleep", "1"], resources=SMALL)
        )
        await client.sessions.create(
            SessionSpec.model_validate(
                {
                    "name": "later",
                    "command": ["true"],
                    "resources": SMALL,
                    "depends_on": [{"session": "first", "on": "any"}],
                }
            )
        )
    shown = await moorage(platform, "update", "later", "--hold", "--priority", "7")
    assert shown == "later: priority 7, held by key:admin\n" or "held by" in shown
    await reaches(platform, "first", Status.TERMINATED)
    await asyncio.sleep(1.0)
    assert (await session(platform, "later")).status is Status.PENDING
    assert "--release" in await moorage(platform, "why", "later")
    await moorage(platform, "update", "later", "--release", "--time-limit", "1m")
    view = await reaches(platform, "later", Status.TERMINATED)
    assert (view.priority, view.spec.timeout_s) == (7, 60.0)
