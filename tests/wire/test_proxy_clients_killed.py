"""OpenAI's and Anthropic's clients with replicas that are killed at random: none fails before its
first byte."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from aiohttp import web
from client_load import ClientLoad
from proxy_harness import KEY, routes, serving, target, until
from scripted_engine import ScriptedEngine

from moorage.common.link.messages import RouteTable, Target

KILLS = 7
PAUSE_S = 0.25


class Replica:
    """A scripted engine that pauses before it answers, and dies like a process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._engine = ScriptedEngine(name, pause_s=0.01)
        self._site: web.Server | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> Replica:
        self._site = web.Server(self._think, handler_cancellation=True)
        self._server = await asyncio.get_running_loop().create_server(self._site, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def kill(self) -> None:
        assert self._server is not None
        assert self._site is not None
        self._server.close()
        for connection in self._site.connections:
            if connection.transport is not None:
                connection.transport.abort()

    @property
    def target(self) -> Target:
        return target(self.name, self.port)

    async def _think(self, request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return await self._engine.serve(request)


@pytest.mark.parametrize("plane", ["asyncio", "simple"])
async def test_only_what_had_begun_is_cut(tmp_path: Path, plane: str) -> None:
    chance = random.Random(plane)
    replicas = [await Replica(f"r{number}").start() for number in range(2)]

    def table(generation: int) -> RouteTable:
        return routes(generation, tiny=[replica.target for replica in replicas])

    async with (
        serving(tmp_path, table(1), plane=plane) as client,
        ClientLoad(client.url, KEY) as load,
    ):
        for number in range(2, KILLS + 2):
            await asyncio.sleep(PAUSE_S * (0.5 + chance.random()))
            chosen = chance.randrange(2)
            replicas[chosen].kill()

            # The manager learns of it later; until then the proxy finds a port that refuses
            # connections.
            await asyncio.sleep(PAUSE_S * chance.random())
            replicas[chosen] = await Replica(f"r{number}").start()
            await client.manager.publish(table(number))
            await until(lambda generation=number: client.has_generation(generation))

        served = load.count("ok")
        await until(lambda: load.count("ok") > served + 20)
        assert not load.failures
        assert load.count("cut"), "some were killed in the middle"
        assert {kind for kind, outcome in load.outcomes if outcome == "ok"} == load.kinds

    for replica in replicas:
        replica.kill()
