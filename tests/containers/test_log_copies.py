"""Output of containers that write a lot, across rotations of the engine's files and up to the last
byte."""

from __future__ import annotations

import asyncio

import pytest

from .conftest import MakeRuntime, launch

PROGRAM = """
import sys, time
for number in range({total}):
    sys.stdout.write('%08d ' % number + 'y' * 90 + chr(10))
    if number % {burst} == {burst} - 1:
        sys.stdout.flush(); time.sleep({pause})
"""


@pytest.mark.parametrize(
    ("total", "burst", "pause", "max_bytes"),
    [
        pytest.param(20_000, 1000, 0.05, 10 << 20, id="its end"),
        # Five files of the engine, which has 6: however slow the machine is, none is deleted.
        pytest.param(60_000, 1000, 0.05, 2 << 20, id="past rotations"),
    ],
)
async def test_a_follower_gets_every_line_once(
    make_runtime: MakeRuntime, total: int, burst: int, pause: float, max_bytes: int
) -> None:
    runtime = make_runtime(log_max_bytes=max_bytes, log_keep_files=5)
    handle = await runtime.create(launch(PROGRAM.format(total=total, burst=burst, pause=pause)))
    output = bytearray()
    async with asyncio.timeout(60):
        async for data in runtime.logs(handle, follow=True):
            output += data

    numbers = [int(line[:8]) for line in output.splitlines()]
    assert numbers == list(range(total))
    await runtime.destroy(handle)
    kept = b"".join([data async for data in runtime.logs(handle)])
    assert kept == output, "the copy that outlives the container"
