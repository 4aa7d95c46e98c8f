"""The route feed: reconnects, proxy restarts, the saved table, and waiting for newer tables."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from proxy_harness import (
    Client,
    RouteServer,
    engine,
    proxy,
    routes,
    serving,
    serving_one,
    target,
    until,
)
from tests.addresses import free_port

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import CommonSettings, ProxySettings
from moorage.common.link.messages import RouteTable
from moorage.proxy import Proxy, Timeouts
from moorage.proxy.control.saved_table import SavedTable

CHAT = {"model": "tiny", "messages": []}
# Nothing here waits that long, so no wait ends because of its limit.
PATIENT = Timeouts(table_update_s=60)
CONNECTED = "moorage_proxy_feed_connected"
AGE = "moorage_proxy_credentials_age_seconds"
GENERATION = "moorage_proxy_table_generation"


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def test_feed_reconnects_to_the_manager(tmp_path):
    async with serving_one(tmp_path, fine, generation=7) as client:
        await client.manager.stop()
        await until(lambda: has_value(client, CONNECTED, 0))
        assert await client.status() == 200
        assert await client.metric(GENERATION) == 7
        client.manager.table = routes(8, other=list(client.manager.table.models[0].targets))
        await client.manager.start()
        await until(lambda: has_value(client, GENERATION, 8), 10)
        assert client.manager.requests[-1] == ("test", 7)
        assert await client.metric(CONNECTED) == 1
        assert await client.status() == 404
        assert await client.status("other") == 200


async def has_value(client: Client, name: str, value: float) -> bool:
    return await client.metric(name) == value


async def test_older_table_is_rejected_with_a_next_step(tmp_path, capsys):
    async with serving_one(tmp_path, fine, generation=7) as client:
        await client.manager.publish(routes(3))
        log_output = ""

        def is_rejected() -> bool:
            nonlocal log_output
            log_output += "".join(capsys.readouterr())
            return "rejected a route table older" in log_output

        await until(is_rejected)
        assert "upgrade the manager" in log_output
        await until(lambda: len(client.manager.requests) > 1)
        assert client.manager.requests[-1][1] == 7, "it tells the manager what it has"
        assert await client.metric(GENERATION) == 7
        assert await client.status() == 200
        await client.manager.publish(routes(8, tiny=[]))
        await until(lambda: has_value(client, GENERATION, 8))
        assert await client.status() == 503


async def test_restart_without_the_manager_serves_by_the_saved_table(tmp_path):
    saved = tmp_path / "proxy-test" / "routes.json"
    async with engine(fine) as port:
        async with serving(tmp_path, routes(7, tiny=[target("k", port)])) as client:
            await until(saved.exists)
            assert await client.status() == 200

        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        async with without_manager(tmp_path) as client:
            assert client.proxy.ready
            assert await client.status() == 200
            assert await client.metric(GENERATION) == 7
            assert await client.metric(CONNECTED) == 0

        # An unusable file does not prevent the start.
        partly_valid = saved.read_text().replace('"models": [{', '"models": [7, {')
        for broken in ("", "{", "[]", '{"format": 99}', partly_valid):
            saved.write_text(broken)
            async with without_manager(tmp_path) as client:
                assert not client.proxy.ready
                assert await client.status() == 503


@asynccontextmanager
async def without_manager(home: Path, **settings: Any) -> AsyncIterator[Client]:
    """A proxy whose manager is unreachable."""
    stopped = RouteServer()
    async with (
        proxy(f"127.0.0.1:{free_port()}", home, **settings) as running,
        aiohttp.ClientSession() as session,
    ):
        yield Client(running, session, stopped)


async def test_every_table_is_saved(tmp_path):
    saved = tmp_path / "proxy-test" / "routes.json"
    async with serving(tmp_path, routes(1)) as client:
        for generation in (2, 3):
            await client.manager.publish(routes(generation))
            await until(
                lambda g=generation: saved.exists() and f'"generation": {g}' in saved.read_text()
            )


async def test_unwritable_home_does_not_stop_the_feed(tmp_path):
    (tmp_path / "proxy-test").write_text("a file in the place of the directory")
    async with serving_one(tmp_path, fine) as client:
        assert await client.status() == 200
        await client.manager.publish(routes(2))
        await until(lambda: has_value(client, GENERATION, 2))
        assert await client.metric(CONNECTED) == 1


async def test_hanging_disk_does_not_delay_the_feed(tmp_path, monkeypatch):
    release = threading.Event()
    stored = []

    def store(self: SavedTable, table: RouteTable) -> None:
        assert release.wait(10)
        stored.append(table.generation)

    monkeypatch.setattr(SavedTable, "store", store)
    async with serving_one(tmp_path, fine) as client:
        for generation in (2, 3, 4):
            await client.manager.publish(routes(generation))
            await until(lambda g=generation: has_value(client, GENERATION, g))

        assert stored == []
        release.set()

    assert stored == [1, 4]  # one at a time, and the newest before shutdown


async def test_hanging_disk_does_not_delay_shutdown(tmp_path, monkeypatch, capsys):
    release = threading.Event()
    monkeypatch.setattr(SavedTable, "store", lambda saved, table: release.wait(20))
    timeouts = Timeouts(last_save_s=0.2)
    async with asyncio.timeout(10), serving_one(tmp_path, fine, timeouts=timeouts) as client:
        assert await client.status() == 200
    assert "may not be saved" in "".join(capsys.readouterr())
    release.set()


async def test_request_waits_for_a_model_that_becomes_ready(tmp_path):
    """The API has reported the model as ready, and the table with its replica is in transit."""
    table = routes(1, tiny=[], other=[])
    async with engine(fine) as port, serving(tmp_path, table, timeouts=PATIENT) as client:
        pending, missing = (
            asyncio.gather(*(client.status(m) for _ in range(50))) for m in ("tiny", "other")
        )
        await asyncio.sleep(0.1)
        await client.manager.publish(routes(2, tiny=[], other=[]))  # still without a replica
        await asyncio.sleep(0.1)
        assert not pending.done()
        await client.manager.publish(routes(3, tiny=[target("k", port)]))
        assert await pending == [200] * 50
        assert await missing == [404] * 50
        assert await client.metric('moorage_proxy_requests_total{code="200",model="tiny"}') == 50


async def test_disconnect_ends_the_wait_for_a_model(tmp_path):
    async with serving(tmp_path, routes(1, tiny=[]), timeouts=PATIENT) as client:

        async def is_given_up() -> bool:
            """Nothing shows that a request waits for its model, so it may not have arrived yet when
            its client leaves."""
            pending = asyncio.create_task(client.status())
            await asyncio.wait([pending], timeout=0.1)
            pending.cancel()
            return await client.metric('moorage_proxy_requests_total{code="499",model="tiny"}') > 0

        await until(is_given_up)


async def test_wait_for_a_model_is_short(tmp_path):
    assert Timeouts().table_update_s <= 1
    async with serving(
        tmp_path, routes(1, tiny=[]), timeouts=Timeouts(table_update_s=0.3)
    ) as client:
        started_at = time.monotonic()
        async with asyncio.timeout(30):
            assert await client.status() == 503
        assert time.monotonic() - started_at >= 0.3


async def test_wrong_link_token_is_reported(tmp_path, capsys):
    async with RouteServer(routes(1)) as manager:
        settings = ProxySettings(
            listen="127.0.0.1:0", internal_listen="127.0.0.1:0", manager=manager.address
        )
        async with Proxy(
            settings,
            CommonSettings(home=tmp_path, link_tls="off"),
            clock=SystemClock(),
            link_token="wrong",
        ) as running:
            log_output = ""

            def is_reported() -> bool:
                nonlocal log_output
                log_output += "".join(capsys.readouterr())
                return "common.link_token" in log_output

            await until(is_reported)
            assert not running.ready


async def test_draining_replica_gets_no_new_requests(tmp_path):
    async with engine(fine) as one, engine(fine) as other:
        table = routes(1, tiny=[target("a", one, draining=True), target("b", other)])
        async with serving(tmp_path, table) as client:
            for _ in range(10):
                async with client.post(CHAT) as response:
                    assert response.headers["x-moorage-replica"] == "session-b"


async def test_metrics_of_removed_models_are_removed(tmp_path):
    async with serving_one(tmp_path, fine) as client:
        assert await client.status() == 200
        assert 'model="tiny"' in await client.metrics()
        await client.manager.publish(routes(2))
        await until(lambda: has_value(client, GENERATION, 2))
        assert 'model="tiny"' not in await client.metrics()


async def test_readyz_lists_its_checks(tmp_path):
    async with (
        serving_one(tmp_path, fine) as client,
        client.session.get(client.internal + "/readyz") as response,
    ):
        assert response.status == 200
        assert await response.json() == {
            "status": "ok",
            "checks": {"route_table": "generation 1, current", "manager_feed": "connected"},
        }


async def test_age_of_the_table_is_told(tmp_path):
    async with serving_one(tmp_path, fine) as client:
        assert await client.metric("moorage_proxy_table_age_seconds") == 0
        await client.manager.stop()
        await until(lambda: has_value(client, "moorage_proxy_feed_connected", 0))
        async with client.session.get(client.internal + "/readyz") as response:
            assert (await response.json())["checks"]["route_table"] == "generation 1, 0 s old"
        assert await client.metric("moorage_proxy_table_age_seconds") > 0
        await client.manager.start()
        await until(lambda: has_value(client, "moorage_proxy_table_age_seconds", 0), 10)


async def test_credentials_are_honoured_for_a_limited_time_without_the_manager(tmp_path):
    async with serving_one(tmp_path, fine, credentials_max_age_s=0.5) as client:
        bare = client.session.get(
            client.url + "/v1/models", headers={"Authorization": "Bearer client-key"}
        )
        async with bare as response:
            assert response.status == 200

        assert await client.metric(AGE) == 0
        await client.manager.stop()
        await until(lambda: has_status(client, 503))

        async with client.post(CHAT) as response:
            error = (await response.json())["error"]
            assert (error["code"], response.headers["Retry-After"]) == ("credentials_stale", "30")
            assert "proxy.credentials_max_age_s" in error["message"]

        async with client.session.get(client.internal + "/readyz") as response:
            assert response.status == 503
            assert "no longer honoured" in (await response.json())["checks"]["credentials"]

        assert await client.metric(AGE) > 0.5
        await client.manager.start()
        await until(lambda: has_status(client, 200), 10)
        assert await client.metric(AGE) == 0


async def test_saved_credentials_are_as_old_as_their_last_confirmation(tmp_path):
    saved = tmp_path / "proxy-test" / "routes.json"
    async with engine(fine) as port:
        async with serving(tmp_path, routes(7, tiny=[target("k", port)])):
            await until(saved.exists)

        two_hours_ago = time.time() - 7200
        os.utime(saved, (two_hours_ago, two_hours_ago))
        async with without_manager(tmp_path) as client:
            assert await client.status() == 503
            assert 7000 < await client.metric(AGE) < 8000
        async with without_manager(tmp_path, credentials_max_age_s=0) as client:
            assert await client.status() == 200
        async with without_manager(tmp_path, auth="none") as client:
            assert await client.status() == 200, "no credentials are needed"


async def test_connected_proxy_confirms_its_saved_credentials(tmp_path):
    saved = tmp_path / "proxy-test" / "routes.json"
    async with serving(tmp_path, routes(7)):
        await until(saved.exists)
        os.utime(saved, (1, 1))
    async with serving(tmp_path, routes(7)):
        await until(lambda: saved.stat().st_mtime > time.time() - 60, 10)


async def has_status(client: Client, status: int) -> bool:
    return await client.status() == status
