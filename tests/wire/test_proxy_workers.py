"""Proxy workers: limits that apply across them, and replacement and drain without a failed
request."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from proxy_harness import (
    AUTH,
    DONE,
    KEY_GRANT,
    TOKEN,
    RouteServer,
    engine,
    event,
    routes,
    stream_of,
    target,
    until,
)
from tests.addresses import free_port

from moorage.common.link.messages import KeyGrant, RequestLimits
from moorage.proxy.control.gathered_health import GatheredHealth, merged_metrics

CHAT = {"model": "tiny", "messages": []}


class Daemon:
    """``moorage proxy`` with two workers."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, internal: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.internal = f"http://127.0.0.1:{internal}"

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    async def status(self) -> int:
        """The status of a request on a new connection, so that any worker may get it."""
        url = self.url + "/v1/chat/completions"
        async with (
            aiohttp.ClientSession(headers=AUTH) as session,
            session.post(url, json=CHAT) as response,
        ):
            await response.read()
            return response.status

    async def text(self, path: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.internal + path) as response,
        ):
            return await response.text()

    async def is_ready(self) -> bool:
        try:
            return '"ok"' in await self.text("/readyz")
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def daemon(home: Path, manager: RouteServer, **settings: Any) -> AsyncIterator[Daemon]:
    port = free_port()
    internal = free_port()
    given = {
        "listen": f"127.0.0.1:{port}",
        "internal_listen": f"127.0.0.1:{internal}",
        "id": "test",
    }
    given |= {"manager": manager.address, "workers": 2} | settings
    arguments = [
        word for name, value in given.items() for word in ("--set", f"proxy.{name}={value}")
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "proxy", "--home", str(home), *arguments,
        env=os.environ | {"MOORAGE_COMMON__LINK_TOKEN": TOKEN, "MOORAGE_COMMON__LINK_TLS": "off"},
    )  # fmt: skip
    try:
        started = Daemon(process, port, internal)
        await until(started.is_ready, 60)
        yield started
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def slow(request: web.Request) -> web.StreamResponse:
    response = await stream_of(request, event("a"))
    for _ in range(10):
        await asyncio.sleep(0.05)
        await response.write(event("b"))
    await response.write(DONE)
    return response


def limited(**limits: int) -> tuple[KeyGrant, ...]:
    return (replace(KEY_GRANT, id="k", limits=RequestLimits(**limits)),)


async def test_limits_hold_across_workers_and_reloads(tmp_path: Path) -> None:
    async def fine(request: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async with engine(fine) as port:
        table = replace(routes(1, tiny=[target("k", port)]), keys=limited(requests_per_minute=30))
        async with RouteServer(table) as manager, daemon(tmp_path, manager) as proxy:
            statuses = await asyncio.gather(*(proxy.status() for _ in range(20)))
            before = proxy.workers()
            assert len(before) == 2
            proxy.process.send_signal(signal.SIGHUP)
            await until(
                lambda: len(proxy.workers()) == 2 and not set(before) & set(proxy.workers()), 60
            )
            statuses += await asyncio.gather(*(proxy.status() for _ in range(40)))
            assert Counter(statuses) == {200: 30, 429: 30}
            metrics = await proxy.text("/metrics")
            assert 'moorage_proxy_requests_total{code="200",model="tiny"} 30.0' in metrics


async def test_no_request_fails_while_workers_are_replaced(tmp_path: Path) -> None:
    async with engine(slow) as port:
        table = routes(1, tiny=[target("k", port)])
        async with RouteServer(table) as manager, daemon(tmp_path, manager) as proxy:
            before = proxy.workers()
            outcomes = Counter[str]()
            stop = asyncio.Event()
            url = proxy.url + "/v1/chat/completions"

            async def load() -> None:
                async with aiohttp.ClientSession(headers=AUTH) as session:
                    while not stop.is_set():
                        try:
                            async with session.post(url, json=CHAT | {"stream": True}) as response:
                                text = await response.read()
                        except aiohttp.ClientError as error:
                            outcomes[repr(error)] += 1
                        else:
                            outcomes["good" if text.endswith(DONE) else repr(text)] += 1

            clients = [asyncio.create_task(load()) for _ in range(8)]
            await until(lambda: outcomes["good"] >= 8, 30)
            proxy.process.send_signal(signal.SIGHUP)
            await until(lambda: not set(before) & set(proxy.workers()), 60)
            so_far = outcomes["good"]
            await until(lambda: outcomes["good"] >= so_far + 16, 30)
            stop.set()
            await asyncio.gather(*clients)
            assert outcomes.keys() == {"good"}, outcomes


async def test_stop_lets_requests_finish(tmp_path: Path) -> None:
    async with engine(slow) as port:
        table = routes(1, tiny=[target("k", port)])
        async with RouteServer(table) as manager, daemon(tmp_path, manager) as proxy:
            url = proxy.url + "/v1/chat/completions"
            async with (
                aiohttp.ClientSession(headers=AUTH) as session,
                session.post(url, json=CHAT) as response,
            ):
                proxy.process.send_signal(signal.SIGTERM)
                assert (await response.read()).endswith(DONE)

            async with asyncio.timeout(30):
                assert await proxy.process.wait() == 0


async def test_killed_worker_is_replaced_and_its_requests_are_forgotten(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def endless(request: web.Request) -> web.Response:
        if not began.is_set():
            began.set()
            await asyncio.sleep(300)
        return web.json_response({})

    async with engine(endless) as port:
        table = replace(routes(1, tiny=[target("k", port)]), keys=limited(concurrent_requests=1))
        async with RouteServer(table) as manager, daemon(tmp_path, manager) as proxy:
            first = asyncio.create_task(proxy.status())
            await began.wait()
            assert await proxy.status() == 429
            before = proxy.workers()
            for pid in before:
                os.kill(pid, signal.SIGKILL)

            await asyncio.gather(first, return_exceptions=True)
            await until(lambda: is_served(proxy), 60)
            assert not set(before) & set(proxy.workers())


async def is_served(proxy: Daemon) -> bool:
    try:
        return await proxy.status() == 200
    except aiohttp.ClientError:
        return False


METRICS = """# HELP moorage_proxy_requests_total Requests.
# TYPE moorage_proxy_requests_total counter
moorage_proxy_requests_total{model="a\\\\\\"b"} 3.0
# HELP moorage_proxy_in_flight In flight.
# TYPE moorage_proxy_in_flight gauge
moorage_proxy_in_flight{model="m"} 2.0
# HELP moorage_proxy_table_generation Generation.
# TYPE moorage_proxy_table_generation gauge
moorage_proxy_table_generation 7.0
# HELP moorage_build_info Version.
# TYPE moorage_build_info gauge
moorage_build_info{version="1.2.3"} 1.0
# HELP process_start_time_seconds Start.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 7.0
"""


def test_metrics_are_added() -> None:
    older = METRICS.replace(" 7.0", " 5.0")
    merged = merged_metrics([METRICS, older])
    assert 'moorage_proxy_requests_total{model="a\\\\\\"b"} 6.0' in merged
    assert 'moorage_proxy_in_flight{model="m"} 4.0' in merged
    assert "moorage_proxy_table_generation 5.0" in merged
    assert 'moorage_build_info{version="1.2.3"} 1.0' in merged
    assert "process_start_time_seconds 5.0" in merged
    assert merged_metrics([merged]) == merged


def test_what_a_departed_worker_counted_stays_counted() -> None:
    health = GatheredHealth(dict, 1)
    health.add_departed(METRICS)
    health.add_departed(METRICS)
    merged = merged_metrics([METRICS], health.departed)
    assert 'moorage_proxy_requests_total{model="a\\\\\\"b"} 9.0' in merged
    assert 'moorage_proxy_in_flight{model="m"} 2.0' in merged
