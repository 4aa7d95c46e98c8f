"""Engines that suites run against."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests import addresses

START_S = 180.0


@asynccontextmanager
async def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> AsyncIterator[int]:
    """The port of an engine that has started. ``command``: without its port."""
    port = addresses.free_port()
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(*command, "--port", str(port)),
            env={**os.environ, **environment},
            stdout=file,
            stderr=file,
        )
    try:
        async with asyncio.timeout(START_S):
            while not await _is_healthy(port):
                assert process.returncode is None, log.read_text()[-3000:]
                await asyncio.sleep(0.2)

        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_healthy(port: int) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/health") as answer,
        ):
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False
