"""The proxies' link: separate credentials, usage that survives restarts, the need for and shares of
limits, and load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import (
    AUTH,
    KEY_GRANT,
    Client,
    RouteServer,
    acknowledge,
    engine,
    event,
    proxy,
    routes,
    serving,
    stream_of,
    target,
    until,
)

from moorage.common.link.messages import KeyGrant, RequestLimits, RouteTable
from moorage.common.link.proxy_messages import (
    EngineRequests,
    ProxyReply,
    ProxyReport,
    RecordsAck,
)
from moorage.common.model.ids import KernelId
from moorage.manager.serving.limit_shares import StoredShares, share_of
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
        assert manager.requests == [("test", 0), ("test", 0)], (
            "asked again for one table with credentials"
        )


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
    key = KeyGrant(
        "x", 5, "ann", "p", limits_models=True, models=("m",), id="i", limits=limits, priority=3
    )
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


def limited(**limits: int) -> tuple[KeyGrant, ...]:
    return (replace(KEY_GRANT, id="k", owner="ann", project="p", limits=RequestLimits(**limits)),)


async def answer(request: web.Request) -> web.Response:
    return web.json_response({"usage": {"prompt_tokens": 3, "completion_tokens": 4}})


async def test_limits_of_a_key(tmp_path: Path) -> None:
    async with engine(answer) as port:
        table = replace(routes(1, tiny=[target("k", port)]), keys=limited(requests_per_minute=3))
        async with serving(tmp_path, table) as client:
            statuses = []
            for _ in range(5):
                async with client.post({"model": "tiny"}) as response:
                    statuses.append(
                        (response.status, response.headers["x-ratelimit-remaining-requests"])
                    )
                    body = await response.json()

            assert statuses == [(200, "2"), (200, "1"), (200, "0"), (429, "0"), (429, "0")]
            assert 1 <= int(response.headers["Retry-After"]) <= 61
            assert body["error"]["code"] == "rate_limit_exceeded"


async def test_usage_and_load_reach_the_manager(tmp_path: Path) -> None:
    async with engine(answer) as port:
        table = replace(routes(1, tiny=[target("k", port)]), keys=limited(tokens_per_minute=1000))
        async with serving(tmp_path, table) as client:
            for _ in range(2):
                async with client.post({"model": "tiny", "max_tokens": 100}) as response:
                    await response.read()

            assert response.headers["x-ratelimit-remaining-tokens"] == str(1000 - 7 - 100 - 9)
            manager = client.manager
            await until(lambda: sum(n for _, _, n in sent(manager)) == 2, 10)
            (record,) = [r for report in manager.reports for b in report.usage for r in b.records][
                :1
            ]
            assert (record.key_id, record.user, record.project, record.model) == (
                "k",
                "ann",
                "p",
                "tiny",
            )
            assert (record.tokens_in, record.tokens_out) == (
                3 * record.requests,
                4 * record.requests,
            )

            def counted() -> bool:
                """Load is reported separately from usage."""
                loads = [m for report in manager.reports if report.load for m in report.load.models]
                return bool(loads) and (loads[-1].model, loads[-1].requests) == ("tiny", 2)

            await until(counted, 10)


async def test_loads_of_engines_are_shown_with_their_models(tmp_path: Path) -> None:
    table = routes(1, tiny=[target("k", 1), target("l", 1)])
    async with serving(tmp_path, table) as client:
        loads = (EngineRequests(KernelId("k"), 2, 1, 500), EngineRequests(KernelId("l"), 1, 0))
        client.manager.answer = lambda report: replace(acknowledge(report), engines=loads)

        async def shown() -> bool:
            async with client.session.get(f"{client.url}/v1/models/tiny", headers=AUTH) as got:
                found = (await got.json())["metrics"]
            return found == {"running": 3, "waiting": 1, "kv_cache": 0.5}

        await until(shown, 20)


@pytest.mark.parametrize(("at_once", "at_most"), [(True, 40), (False, 60)])
async def test_two_proxies_share_a_limit(tmp_path: Path, at_once: bool, at_most: int) -> None:
    """A proxy whose share has not arrived yet grants an equal part at most."""
    stored = StoredShares("", 0, {}, 0.0)

    def divide(report: ProxyReport) -> ProxyReply:
        nonlocal stored
        shares = []
        for need in report.needs:
            share, stored = share_of(
                need, report.proxy_id, replace(stored, now=time.monotonic()), 2
            )
            shares.append(share)
        return replace(acknowledge(report), shares=tuple(shares), proxies=2)

    async with engine(answer) as port:
        table = replace(routes(1, tiny=[target("k", port)]), keys=limited(requests_per_minute=40))
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(RouteServer(table))
            manager.answer = divide
            clients = []
            for name in ("one", "two"):
                running = proxy(manager.address, tmp_path, id=name)
                await stack.enter_async_context(running)
                session = await stack.enter_async_context(aiohttp.ClientSession())
                clients.append(Client(running, session, manager))
                await until(lambda running=running: running.ready)

            await until(lambda: len({report.proxy_id for report in manager.reports}) == 2)
            granted = Counter()

            async def use(client: Client) -> bool:
                for _ in range(10):
                    granted[await client.status()] += 1
                return granted[200] >= 40

            if not at_once:
                # One of them takes the part that the other does not need.
                await until(lambda: use(clients[0]), 20)

            for _ in range(8):
                await asyncio.gather(*map(use, clients))
                await asyncio.sleep(0.1)

            assert 40 <= granted[200] <= at_most


async def test_stream_of_a_revoked_key_ends_with_an_error(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = await stream_of(request, event("a"))
        try:
            await asyncio.Event().wait()  # only the proxy can end it
        finally:
            ended.set()
        return response

    async with engine(stream) as port:
        table = routes(1, tiny=[target("k", port)])
        async with serving(tmp_path, table) as client:
            async with client.post({"model": "tiny", "stream": True}) as response:
                assert await response.content.readany() == event("a")
                await client.manager.publish(RouteTable(2, table.models, ()))
                async with asyncio.timeout(30):
                    rest = await response.content.read()

            assert b"invalid_api_key" in rest
            assert b"[DONE]" not in rest
            async with asyncio.timeout(30):
                await ended.wait()

            assert await client.status() == 401
