"""Hostile HTTP at the proxy: every case of the table, from clients and from replicas and apps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp import web
from proxy_harness import KEY, Client, serving_one
from tests.hostile_http import BODY_S, CASES, HEAD_S, IDLE_S, Case, exchange

from moorage.proxy import Timeouts

SHORT = Timeouts(head_s=HEAD_S, body_s=BODY_S, linger_s=0.02)
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Served:
    """A proxy in front of one engine. ``reached``: the number of requests that reached the engine."""

    def __init__(self) -> None:
        self.reached = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.reached += 1
        return web.json_response({})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[bool, tuple[Served, Client]]]:
    """By ``Case.idle``."""
    engine, folder = Served(), tmp_path_factory.mktemp
    async with (
        serving_one(folder("proxy"), engine.answer, timeouts=SHORT) as client,
        serving_one(folder("idle"), engine.answer, timeouts=replace(SHORT, idle_s=IDLE_S)) as impatient,
    ):
        yield {False: (engine, client), True: (engine, impatient)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_request(servers: dict[bool, tuple[Served, Client]], case: Case) -> None:
    engine, client = servers[case.idle]
    outcome = await exchange(client.proxy.address, case, path="/v1/chat/completions", key=KEY)
    assert not outcome.problem(case)
    assert engine.reached == 0
    assert await client.status() == 200, "the proxy serves others"
    engine.reached = 0
