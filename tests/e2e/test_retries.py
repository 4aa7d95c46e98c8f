"""Retries through the real commands: a failed program runs again, and both logs are kept."""

from __future__ import annotations

import asyncio

import pytest

from .harness import Platform


@pytest.mark.timeout(120)
async def test_failed_program_is_retried_and_each_attempt_keeps_its_log(one_node: Platform) -> None:
    platform = one_node
    marker = platform.home / "it-ran-before"
    program = (
        f'if [ -e "{marker}" ]; then echo second; else echo first; touch "{marker}"; exit 3; fi'
    )
    small = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")
    result = await asyncio.to_thread(
        platform.run,
        "run",
        "--name",
        "again",
        "--retries",
        "1",
        *small,
        "--",
        "/bin/sh",
        "-c",
        program,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "first\nsecond\n"

    for arguments, output in (
        ((), "second\n"),
        (("--attempt", "1"), "first\n"),
        (("--attempt", "2"), "second\n"),
    ):
        logs = await asyncio.to_thread(platform.run, "logs", "again", *arguments)
        assert logs.stdout == output, logs.stderr

    rejected = await asyncio.to_thread(platform.run, "logs", "again", "--attempt", "3")
    assert rejected.returncode != 0
    assert "attempt 3" in rejected.stderr
    description = (await asyncio.to_thread(platform.run, "describe", "again")).stdout
    assert "requeue" in description
    assert "retry 1 of 1, not before 5 s from now" in description
    assert "SUCCEEDED" in description
