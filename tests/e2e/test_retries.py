"""A program that fails the first time, through the real commands: it runs again, and both logs are kept."""

from __future__ import annotations

import asyncio

import pytest

from .parts import Platform, until

# One platform at a time, also with pytest -n and --dist loadgroup.
pytestmark = pytest.mark.xdist_group("platform")


@pytest.mark.timeout(120)
async def test_a_failed_program_runs_again_and_each_run_keeps_its_log(one_node: Platform) -> None:
    platform = one_node
    marker = platform.home / "it-ran-before"
    program = f'if [ -e "{marker}" ]; then echo second; else echo first; touch "{marker}"; exit 3; fi'
    await until("the first key is there", lambda: asyncio.to_thread((platform.home / "admin-key").exists))

    async def answers() -> bool:
        async with platform.client() as client:
            return (await client.health()).status == "ok"

    await until("the manager answers", answers)
    small = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")
    done = await asyncio.to_thread(
        platform.run, "run", "--name", "again", "--retries", "1", *small, "--", "/bin/sh", "-c", program
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "first\nsecond\n"
    for words, said in (((), "second\n"), (("--attempt", "1"), "first\n"), (("--attempt", "2"), "second\n")):
        logs = await asyncio.to_thread(platform.run, "logs", "again", *words)
        assert logs.stdout == said, logs.stderr
    refused = await asyncio.to_thread(platform.run, "logs", "again", "--attempt", "3")
    assert refused.returncode != 0
    assert "attempt 3" in refused.stderr
    story = (await asyncio.to_thread(platform.run, "describe", "again")).stdout
    assert "requeue" in story
    assert "retry 1 of 1, not before 5 s from now" in story
    assert "SUCCESS" in story
