"""Interactive sessions through the real commands."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from .parts import Platform, until

# One platform at a time, also with pytest -n and --dist loadgroup.
pytestmark = pytest.mark.xdist_group("platform")
SMALL = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")


async def up(platform: Platform) -> None:
    await until("the first key is there", lambda: asyncio.to_thread((platform.home / "admin-key").exists))

    async def answers() -> bool:
        async with platform.client() as client:
            return (await client.health()).status == "ok"

    await until("the manager answers", answers)


@pytest.mark.timeout(180)
async def test_a_session_is_started_followed_and_stopped(one_node: Platform) -> None:
    platform = one_node
    await up(platform)
    idle = await asyncio.to_thread(platform.run, "start", "--name", "dev", *SMALL)
    assert (idle.returncode, idle.stdout) == (0, "dev\n"), idle.stderr
    program = "echo first; read line <gate; echo $line"
    own = await asyncio.to_thread(
        platform.run, "start", "--name", "own", *SMALL, "--", "/bin/sh", "-c", f"mkfifo gate; {program}"
    )
    assert own.returncode == 0, own.stderr
    described = await asyncio.to_thread(platform.run, "describe", "dev")
    assert "fairlead logs -f dev" in described.stdout
    follower = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "logs", "-f", "own"], env=platform.env, stdout=subprocess.PIPE
    )
    assert follower.stdout is not None
    try:
        assert await asyncio.to_thread(follower.stdout.readline) == b"first\n"
        [gate] = platform.home.rglob("gate")
        await asyncio.to_thread(gate.write_text, "second\n")
        assert await asyncio.to_thread(follower.stdout.readline) == b"second\n"
        assert await asyncio.to_thread(follower.wait, 30) == 0
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()
    assert (await asyncio.to_thread(platform.run, "stop", "dev")).returncode == 0
    gone = await asyncio.to_thread(platform.run, "describe", "dev")
    assert "TERMINATED" in gone.stdout
    assert "fairlead stop dev" not in gone.stdout
