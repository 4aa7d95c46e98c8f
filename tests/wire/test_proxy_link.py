"""The proxies' link: credentials apart, usage that survives restarts, needs and shares of limits, load."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from proxy_harness import (
    KEY_GRANT,
    Client,
    RouteServer,
    acknowledge,
    engine,
    proxy,
    routes,
    serving,
    target,
    until,
)

from moorage.common.link.messages import KeyGrant, RequestLimits, RouteTable
from moorage.common.link.proxy_messages import ProxyReply, RecordsAck
from moorage.proxy.control.saved_table import SavedTable
from moorage.proxy.control.usage_spool import UsageSpool
from moorage.proxy.core.usage_book import Amounts, Payer

PAYER = Payer("p", "ann", "k", "m")


async def fine(request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def test_proxy_follows_a_manager_of_the_previous_release(tmp_path: Path) -> None:
    async with (
        engine(fine) as port,
        RouteServer(routes(3, tiny=[target("k", port)]), of_previous_release=True) as manager,
        proxy(manager.address, tmp_path) as running,
    ):
        await until(lambda: running.ready)
        assert manager.requests == [("test", 0), ("test", 0)], "asked again for one table with credentials"


async def test_revoked_key_is_refused(tmp_path: Path) -> None:
    async with engine(fine) as port:
        table = routes(1, tiny=[target("k", port)])
        async with serving(tmp_path, table) as client:
            assert await client.status() == 200
            await client.manager.publish(RouteTable(2, table.models, ()))
            await until(lambda: is_refused(client))


async def is_refused(client: Client) -> bool:
    return await client.status() == 401


async def test_saved_table_keeps_everything(tmp_path: Path) -> None:
    limits = RequestLimits(1, None, 0)
    key = KeyGrant("x", 5, "ann", "p", limits_models=True, models=("m",), id="i", limits=limits, priority=3)
    table = routes(1, tiny=[target("k", 1)])
    table = RouteTable(7, table.models, (KEY_GRANT, key))
    saved = SavedTable(tmp_path / "routes.json")
    saved.store(table)
    assert saved.load() == table


def stored(spool: UsageSpool, requests: int) -> list[tuple[str, int]]:
    batches = spool.store({PAYER: Amounts(requests, 1, 2, 0)}, 1000, 2000)
    return [(batch.epoch, batch.records[-1].sequence) for batch in batches]


def test_spool_keeps_batches_until_they_are_acknowledged(tmp_path: Path) -> None:
    spool = UsageSpool(tmp_path, "e")
    assert stored(spool, 1) == [("e", 1)]
    assert stored(spool, 2) == [("e", 2)]
    spool.remove([RecordsAck("e", 1), RecordsAck("e", 9)])
    (tmp_path / "f.3.json").write_text("{")
    (tmp_path / "f.4.new").write_text("{")
    (batch,) = UsageSpool(tmp_path, "f").load()
    assert (batch.epoch, batch.records[0].requests, batch.records[0].user) == ("e", 2, "ann")
    assert stored(UsageSpool(tmp_path, "g"), 3) == [("g", 1)]


def test_full_spool_says_what_it_dropped(tmp_path: Path, capsys) -> None:
    spool = UsageSpool(tmp_path, "e", max_bytes=400)
    assert stored(spool, 1) == [("e", 1)]
    assert stored(spool, 1) == []
    assert spool.dropped == 1
    assert "usage was dropped" in "".join(capsys.readouterr())
    spool.remove([RecordsAck("e", 1)])
    assert stored(spool, 1) == [("e", 2)]


async def test_usage_of_an_earlier_run_is_sent_until_it_is_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "proxy-test" / "usage"
    stored(UsageSpool(directory, "before"), 4)
    async with RouteServer(routes(1)) as manager:
        manager.answer = lambda report: ProxyReply()
        async with proxy(manager.address, tmp_path):
            await until(lambda: sent(manager))
            await manager.stop()
            manager.answer = acknowledge
            await manager.start()
            await until(lambda: not list(directory.glob("*.json")), 10)
            assert sent(manager) == [("before", 1, 4)] * 2


def sent(manager: RouteServer) -> list[tuple[str, int, int]]:
    return [
        (batch.epoch, record.sequence, record.requests)
        for report in manager.reports
        for batch in report.usage
        for record in batch.records
    ]
