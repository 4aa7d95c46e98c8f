"""The scripted engine, directly, through every data plane, and through nginx in front of a plane."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.clients.checks import Place
from tests.conformance.planes.harness import (
    ACCESS_TOKEN,
    APP_PATH,
    KEY,
    PLANES,
    REPLICA_KEY,
    serving,
    table,
    target,
    until,
)
from tests.deploy import web_servers

ROOT = Path(__file__).parents[2]
DIRECT = "directly"
MODEL = "tiny"


@asynccontextmanager
async def engine() -> AsyncIterator[int]:
    """The port of an engine that accepts the keys of clients and of the proxy."""
    command = ("-m", "tests.clients.engine", KEY, REPLICA_KEY)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


def _place(name: str, base: str, app: str) -> Place:
    return Place(name, base, KEY, MODEL, app, ACCESS_TOKEN)


@asynccontextmanager
async def places() -> AsyncIterator[list[Place]]:
    """The engine's own address first, then one for each plane."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(engine())
        direct = f"http://127.0.0.1:{port}"
        found = [_place(DIRECT, direct, direct)]
        for name, make in PLANES.items():
            routes = table(target("k", port), app_port=port)
            served = await stack.enter_async_context(serving(make, routes))
            base = "http://{}:{}".format(*served.address)
            found.append(_place(name, base, f"{base}{APP_PATH}"))

        yield found


@asynccontextmanager
async def behind_nginx(folder: Path) -> AsyncIterator[tuple[list[Place], Path]]:
    """The engine's own address and that of nginx, with the file of nginx's authority."""
    async with engine() as port:
        direct = f"http://127.0.0.1:{port}"
        routes = table(target("k", port), app_port=port)
        async with serving(PLANES["asyncio"], routes) as served:
            proxy = "{}:{}".format(*served.address)
            nginx = web_servers.WebServer("nginx", web_servers.Place(folder, proxy, proxy))
            try:
                await until(nginx.listens)
                base = nginx.url(web_servers.LOOPBACK)
                through = _place("nginx", base, f"{base}{APP_PATH}")
                yield [_place(DIRECT, direct, direct), through], nginx.ca
            finally:
                nginx.close()
