"""Apps through connections that stay: WebSockets byte for byte, and TCP through a tunnel."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from apps_harness import ACCESS_TOKEN, ID, SHOW, app_of, apps, newer
from proxy_harness import serving
from tests.free_ports import free_port

from moorage.common.aio.sockets import reset
from moorage.sdk import ApiError, Unreachable, carry

MIB = 1024 * 1024


async def echo(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse(protocols=("v2", "v1"), max_msg_size=0, autoping=False)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.data == "bye":
            await socket.close(code=4001, message=b"as asked")
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        else:
            await socket.send_bytes(message.data)
    return socket


async def test_a_websocket_passes_with_its_subprotocol_its_pings_and_its_end(tmp_path):
    async with (
        app_of(tmp_path, echo) as (c, url),
        c.session.ws_connect(
            f"{url}/ws?x=1", protocols=("v1", "v3"), headers=SHOW, autoping=False, compress=15
        ) as socket,
    ):
        assert socket.protocol == "v1"
        await socket.send_str("ä")
        assert (await socket.receive()).data == "ä"
        await socket.ping(b"there?")
        pong = await socket.receive()
        assert (pong.type, pong.data) == (WSMsgType.PONG, b"there?")
        await socket.send_str("bye")
        end = await socket.receive()
        assert (end.type, end.data, end.extra) == (WSMsgType.CLOSE, 4001, "as asked")


async def test_a_large_message_passes_whole(tmp_path):
    big = b"0123456789abcdef" * (2 * MIB)
    async with (
        app_of(tmp_path, echo) as (c, url),
        c.session.ws_connect(f"{url}/ws", headers=SHOW, max_msg_size=0) as socket,
    ):
        await socket.send_bytes(big)
        back = await socket.receive_bytes()
        assert hashlib.sha256(back).digest() == hashlib.sha256(big).digest()


async def test_what_the_app_says_instead_of_accepting_passes(tmp_path):
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=403, text="not today")

    async with app_of(tmp_path, refuse) as (c, url):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await c.session.ws_connect(f"{url}/ws", headers=SHOW)
        assert refused.value.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await c.session.ws_connect(f"{url}/ws")
        assert refused.value.status == 401
        foreign = {"Cookie": f"moorage-access-token={ACCESS_TOKEN}", "Origin": "https://evil.example"}
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await c.session.ws_connect(f"{url}/ws", headers=foreign)
        assert refused.value.headers["x-moorage-why"].startswith("A page of")


async def test_a_reader_that_does_not_read_holds_a_websocket_back(tmp_path):
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        while True:
            await socket.send_bytes(b"x" * 65536)
            written += 65536

    async with app_of(tmp_path, pour) as (c, _):
        reader, writer = await asyncio.open_connection(*c.proxy.address)
        head = f"GET /apps/{ID}/lab/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ACCESS_TOKEN}\r\n"
        head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        head += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.5)  # what is looked for is that nothing happens
        assert 0 < written < 64 * MIB
        for _ in range(200):
            await reader.readexactly(65536)
        assert written >= 200 * 65536, "and goes on once it is read"
        writer.close()


async def test_an_app_that_dies_and_an_access_token_that_is_revoked_end_a_websocket(tmp_path):
    async def die(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        request.transport.abort()
        return socket

    async with app_of(tmp_path, die) as (c, url):
        async with c.session.ws_connect(f"{url}/ws", headers=SHOW) as socket:
            await socket.send_str("now")
            assert (await socket.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)
            assert socket.close_code == 1006
        async with c.session.ws_connect(f"{url}/ws", headers=SHOW) as socket:
            await c.manager.publish(newer(c.manager.table, access_tokens=()))
            async with asyncio.timeout(5):
                assert (await socket.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)


async def test_a_client_that_leaves_ends_its_websocket_at_the_app(tmp_path):
    left = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        try:
            await socket.receive()
        finally:
            left.set()
        return socket

    async with app_of(tmp_path, wait) as (c, url):
        socket = await c.session.ws_connect(f"{url}/ws", headers=SHOW)
        socket._response.connection.transport.abort()
        async with asyncio.timeout(5):
            await left.wait()


# TCP.

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def tcp(talk: Talk) -> AsyncIterator[int]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def forwarded(url: str, access_token: str = ACCESS_TOKEN) -> AsyncIterator[tuple[int, list[Exception]]]:
    """A local port that leads through ``url``, and what went wrong."""
    failed: list[Exception] = []

    async with aiohttp.ClientSession() as http:

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await carry(http, url, access_token, reader, writer)
            except (ApiError, Unreachable) as error:
                failed.append(error)
                reset(writer.transport)
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1], failed
        finally:
            server.close()


@asynccontextmanager
async def led(home: Path, port: int) -> AsyncIterator[int]:
    """A local port that leads to ``port`` through a proxy."""
    async with (
        serving(home, apps(port, app="db", protocol="tcp")) as c,
        forwarded(f"{c.url}/tunnel/{ID}/db") as (local, _),
    ):
        yield local


async def test_a_tunnel_carries_bytes_and_each_direction_ends_by_itself(tmp_path):
    async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = hashlib.sha256()
        while data := await reader.read(65536):
            found.update(data)
        writer.write(found.digest() * 1000)  # only once the other direction has ended
        await writer.drain()

    async with tcp(digest) as port, serving(tmp_path, apps(port, app="db", protocol="tcp")) as c:
        async with forwarded(f"{c.url}/tunnel/{ID}/db") as (local, failed):
            for size in (0, 1, 20 * MIB):
                reader, writer = await asyncio.open_connection("127.0.0.1", local)
                writer.write(b"x" * size)
                writer.write_eof()
                assert await reader.read() == hashlib.sha256(b"x" * size).digest() * 1000
                writer.close()
        assert failed == []
        async with c.session.get(f"{c.url}/apps/{ID}/db/", headers=SHOW) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (400, "app_is_tcp")
        async with c.session.get(f"{c.url}/tunnel/{ID}/db", headers=SHOW) as got:
            assert got.status == 426


async def test_an_app_that_ends_first_still_hears_the_client(tmp_path):
    heard = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.write_eof()
        heard.set_result(await reader.read())

    async with tcp(greet) as port, led(tmp_path, port) as local:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.read() == b"hello"
            writer.write(b"bye")
            writer.write_eof()
            assert await asyncio.wait_for(heard, 5) == b"bye"
            writer.close()


async def test_a_tunnel_that_breaks_is_broken_at_both_ends(tmp_path):
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await writer.drain()
        await reader.readexactly(1)
        reset(writer.transport)

    async with tcp(die) as port, serving(tmp_path, apps(port, app="db", protocol="tcp")) as c:
        async with forwarded(f"{c.url}/tunnel/{ID}/db") as (local, failed):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.readexactly(4) == b"half"
            writer.write(b"x")
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
            writer.close()
        assert [type(error) for error in failed] == [Unreachable]


async def test_a_program_that_does_not_read_holds_the_tunnel_back(tmp_path):
    go = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        while await reader.read(MIB):
            pass
        writer.write(b"all")

    async with tcp(deaf) as port, led(tmp_path, port) as local:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)

            async def send() -> None:
                for _ in range(128):
                    writer.write(b"x" * MIB)
                    await writer.drain()
                writer.write_eof()

            sending = asyncio.create_task(send())
            done, _ = await asyncio.wait([sending], timeout=1.5)
            assert not done, "128 MiB went somewhere"
            go.set()
            assert await asyncio.wait_for(reader.read(), 30) == b"all"
            await sending
            writer.close()


async def test_what_a_tunnel_is_refused_for_is_told(tmp_path):
    async with serving(tmp_path, apps(free_port(), app="db", protocol="tcp")) as c:
        for access_token, status, told in (
            (ACCESS_TOKEN, 502, "nothing answers"),
            ("mga-bad", 401, "unknown, revoked"),
        ):
            async with forwarded(f"{c.url}/tunnel/{ID}/db", access_token) as (local, failed):
                _, writer = await asyncio.open_connection("127.0.0.1", local)
                async with asyncio.timeout(5):
                    while not failed:
                        await asyncio.sleep(0.01)
                writer.close()
            assert isinstance(failed[0], ApiError)
            assert failed[0].status == status
            assert told in str(failed[0])
