"""Limits of a resource group through the real commands: refused, completed, waiting and ended
sessions."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .harness import Platform, until

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")
LIMITS = (
    "limits.max_batch_time_s=60",
    "limits.default_batch_time_s=1",
    "limits.max_per_session.mem=64MiB",
    "limits.max_running_per_user=1",
    "limits.max_pending_per_user=1",
)


async def moorage(platform: Platform, *args: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(platform.run, *args)


@pytest_asyncio.fixture
async def limited(one_node: Platform) -> AsyncIterator[Platform]:
    done = await moorage(one_node, "groups", "set", "default", *LIMITS)
    assert done.returncode == 0, done.stderr
    yield one_node
    done = await moorage(one_node, "groups", "set", "default", "limits=none")
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(180)
async def test_limits_of_a_group(limited: Platform) -> None:
    described = await moorage(limited, "groups", "describe", "default")
    assert "max_running_per_user=1" in described.stdout

    large = await moorage(limited, "run", "--no-wait", "--memory", "1GiB", "--", "true")
    assert large.returncode != 0
    assert "resources.mem = 1GiB is above 64MiB" in large.stderr
    long = await moorage(limited, "run", "--no-wait", "--timeout", "2h", *SMALL, "--", "true")
    assert long.returncode != 0
    assert "timeout_s = 7200 is above 60" in long.stderr

    begun = await moorage(limited, "start", "--name", "first", *SMALL)
    assert begun.returncode == 0, begun.stderr
    waits = await moorage(
        limited, "run", "--name", "second", "--no-wait", *SMALL, "--", "sleep", "60"
    )
    assert waits.returncode == 0, waits.stderr
    third = await moorage(limited, "run", "--no-wait", *SMALL, "--", "true")
    assert "may have 1 pending sessions in resource_group 'default'" in third.stderr

    async with limited.client() as client:

        async def waits_for_the_first() -> bool:
            hold = (await client.sessions.get("second")).hold
            line = "in this resource group: 1 concurrent sessions of 1"
            return hold is not None and any(line in refusal for refusal in hold.refusals)

        await until("the second session waits for the first", waits_for_the_first)
        await client.sessions.stop("first")

        async def ended_by_its_limit() -> bool:
            return (await client.sessions.get("second")).reason == "timeout"

        await until("the default time limit ends the second session", ended_by_its_limit, 60)
