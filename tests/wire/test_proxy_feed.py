"""The feed: the manager goes and comes back, the proxy restarts, tables change."""

from __future__ import annotations

import asyncio
import stat
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from proxy_harness import (
    Client,
    RouteServer,
    alone,
    engine,
    proxy,
    routes,
    serving,
    target,
    until,
)
from tests.free_ports import free_port

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import CommonSettings, ProxySettings
from moorage.common.link.messages import RouteTable
from moorage.proxy import Proxy
from moorage.proxy.control import feed
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.control.updates import WITHIN_S

CHAT = {"model": "tiny", "messages": []}
CONNECTED = "moorage_proxy_feed_connected"
GENERATION = "moorage_proxy_table_generation"


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def test_the_manager_goes_away_and_comes_back(tmp_path):
    async with alone(tmp_path, fine, generation=7) as c:
        await c.manager.stop()
        await until(lambda: _is(c, CONNECTED, 0))
        assert await c.status() == 200
        assert await c.metric(GENERATION) == 7
        c.manager.table = routes(8, other=list(c.manager.table.models[0].targets))
        await c.manager.start()
        await until(lambda: _is(c, GENERATION, 8), 10)
        assert c.manager.asked[-1] == ("test", 7)
        assert await c.metric(CONNECTED) == 1
        assert await c.status() == 404
        assert await c.status("other") == 200


async def _is(c: Client, name: str, value: float) -> bool:
    return await c.metric(name) == value


async def test_an_older_table_is_refused_with_a_way_out(tmp_path, capsys):
    async with alone(tmp_path, fine, generation=7) as c:
        await c.manager.publish(routes(3))
        said = ""

        def refused() -> bool:
            nonlocal said
            said += "".join(capsys.readouterr())
            return "older route table was refused" in said

        await until(refused)
        assert "delete" in said
        assert "routes.json" in said
        assert await c.metric(GENERATION) == 7
        assert await c.status() == 200
        await c.manager.publish(routes(8, tiny=[]))
        await until(lambda: _is(c, GENERATION, 8))
        assert await c.status() == 503


async def test_a_restart_without_the_manager_serves_by_the_last_table(tmp_path):
    saved = tmp_path / "proxy-test" / "routes.json"
    async with engine(fine) as port:
        async with serving(tmp_path, routes(7, tiny=[target("k", port)])) as c:
            await until(saved.exists)
            assert await c.status() == 200
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        async with orphaned(tmp_path) as c:
            assert c.proxy.ready
            assert await c.status() == 200
            assert await c.metric(GENERATION) == 7
            assert await c.metric(CONNECTED) == 0
        # A file that cannot be used is no reason not to start.
        half_right = saved.read_text().replace('"models": [{', '"models": [7, {')
        for broken in ("", "{", "[]", '{"format": 99}', half_right):
            saved.write_text(broken)
            async with orphaned(tmp_path) as c:
                assert not c.proxy.ready
                assert await c.status() == 503


@asynccontextmanager
async def orphaned(home: Path) -> AsyncIterator[Client]:
    """A proxy whose manager is not there."""
    nobody = RouteServer()
    async with (
        proxy(f"127.0.0.1:{free_port()}", home) as running,
        aiohttp.ClientSession() as session,
    ):
        yield Client(running, session, nobody)


async def test_tables_are_saved_as_they_come(tmp_path):
    saved = tmp_path / "proxy-test" / "routes.json"
    async with serving(tmp_path, routes(1)) as c:
        for generation in (2, 3):
            await c.manager.publish(routes(generation))
            await until(lambda g=generation: saved.exists() and f'"generation": {g}' in saved.read_text())


async def test_a_home_that_cannot_be_written_does_not_stop_the_feed(tmp_path):
    (tmp_path / "proxy-test").write_text("a file where the folder should be")
    async with alone(tmp_path, fine) as c:
        assert await c.status() == 200
        await c.manager.publish(routes(2))
        await until(lambda: _is(c, GENERATION, 2))
        assert await c.metric(CONNECTED) == 1


async def test_a_disk_that_hangs_does_not_hold_up_the_feed(tmp_path, monkeypatch):
    let_go, stored = threading.Event(), []

    def store(self: SavedTable, table: RouteTable) -> None:
        assert let_go.wait(10)
        stored.append(table.generation)

    monkeypatch.setattr(SavedTable, "store", store)
    async with alone(tmp_path, fine) as c:
        for generation in (2, 3, 4):
            await c.manager.publish(routes(generation))
            await until(lambda g=generation: _is(c, GENERATION, g))
        assert stored == []
        let_go.set()
    assert stored == [1, 4]  # one at a time, and the newest before the proxy ends


async def test_a_disk_that_hangs_does_not_hold_up_the_end(tmp_path, monkeypatch, capsys):
    let_go = threading.Event()
    monkeypatch.setattr(SavedTable, "store", lambda saved, table: let_go.wait(20))
    monkeypatch.setattr(feed, "_LAST_SAVE_S", 0.2)
    async with asyncio.timeout(10), alone(tmp_path, fine) as c:
        assert await c.status() == 200
    assert "may not be saved" in "".join(capsys.readouterr())
    let_go.set()


async def test_a_model_that_is_just_getting_ready_is_waited_for(tmp_path):
    """Its user was told that it is ready, and the table that says so is on its way."""
    async with engine(fine) as port, serving(tmp_path, routes(1, tiny=[], other=[])) as c:
        asking, gone = (asyncio.gather(*(c.status(m) for _ in range(50))) for m in ("tiny", "other"))
        await asyncio.sleep(0.1)
        await c.manager.publish(routes(2, tiny=[], other=[]))  # says nothing of it
        await asyncio.sleep(0.1)
        assert not asking.done()
        await c.manager.publish(routes(3, tiny=[target("k", port)]))
        assert await asking == [200] * 50
        assert await gone == [404] * 50
        assert await c.metric('moorage_proxy_requests_total{code="200",model="tiny"}') == 50


async def test_who_leaves_while_a_model_gets_ready_is_not_waited_for(tmp_path):
    async with serving(tmp_path, routes(1, tiny=[])) as c:
        asking = asyncio.create_task(c.status())
        await asyncio.sleep(0.1)
        asking.cancel()
        left = 'moorage_proxy_requests_total{code="499",model="-"}'
        await until(lambda: _is(c, left, 1), WITHIN_S / 2)


async def test_a_model_that_is_not_ready_is_not_waited_for_long(tmp_path):
    async with serving(tmp_path, routes(1, tiny=[])) as c:
        asked_at = time.monotonic()
        assert await c.status() == 503
        assert WITHIN_S <= time.monotonic() - asked_at < WITHIN_S + 1


async def test_a_wrong_link_token_is_named(tmp_path, capsys):
    async with RouteServer(routes(1)) as manager:
        settings = ProxySettings(listen="127.0.0.1:0", internal_listen="127.0.0.1:0", manager=manager.address)
        async with Proxy(
            settings, CommonSettings(home=tmp_path), clock=SystemClock(), link_token="wrong"
        ) as running:
            said = ""

            def named() -> bool:
                nonlocal said
                said += "".join(capsys.readouterr())
                return "common.link_token" in said

            await until(named)
            assert not running.ready


async def test_a_drained_replica_gets_nothing_new(tmp_path):
    async with engine(fine) as one, engine(fine) as other:
        table = routes(1, tiny=[target("a", one, draining=True), target("b", other)])
        async with serving(tmp_path, table) as c:
            for _ in range(10):
                async with c.post(CHAT) as got:
                    assert got.headers["x-moorage-replica"] == "b"


async def test_series_of_models_that_went_away_go_too(tmp_path):
    async with alone(tmp_path, fine) as c:
        assert await c.status() == 200
        assert 'model="tiny"' in await c.metrics()
        await c.manager.publish(routes(2))
        await until(lambda: _is(c, GENERATION, 2))
        assert 'model="tiny"' not in await c.metrics()


async def test_ready_says_what_it_stands_on(tmp_path):
    async with alone(tmp_path, fine) as c, c.session.get(c.internal + "/readyz") as got:
        assert got.status == 200
        assert await got.json() == {
            "status": "ok",
            "checks": {"route_table": "generation 1", "manager_feed": "connected"},
        }
