"""Long-lived connections to apps: WebSockets byte for byte, and TCP tunnels."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SHUT_RDWR

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from apps_harness import ACCESS_TOKEN, BEARER, ID, app_table, next_table, serving_app
from proxy_harness import serving, until
from tests.addresses import free_port

from moorage.common.aio.sockets import reset
from moorage.sdk import ApiError, Unreachable
from moorage.sdk.tunnel import forward_connection

MIB = 1024 * 1024


async def echo(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse(protocols=("v2", "v1"), max_msg_size=0, autoping=False)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.data == "bye":
            await socket.close(code=4001, message=b"as requested")
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        else:
            await socket.send_bytes(message.data)

    return socket


async def test_websocket_keeps_subprotocol_pings_and_close_code(tmp_path):
    async with (
        serving_app(tmp_path, echo) as (client, url),
        client.session.ws_connect(
            f"{url}/ws?x=1", protocols=("v1", "v3"), headers=BEARER, autoping=False, compress=15
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
        assert (end.type, end.data, end.extra) == (WSMsgType.CLOSE, 4001, "as requested")


async def test_large_websocket_message_passes(tmp_path):
    big = b"0123456789abcdef" * (2 * MIB)
    async with (
        serving_app(tmp_path, echo) as (client, url),
        client.session.ws_connect(f"{url}/ws", headers=BEARER, max_msg_size=0) as socket,
    ):
        await socket.send_bytes(big)
        echoed = await socket.receive_bytes()
        assert hashlib.sha256(echoed).digest() == hashlib.sha256(big).digest()


async def test_rejected_websocket_handshakes_pass_the_status(tmp_path):
    async def reject(request: web.Request) -> web.Response:
        return web.Response(status=403, text="not today")

    async with serving_app(tmp_path, reject) as (client, url):
        with pytest.raises(aiohttp.WSServerHandshakeError) as rejected:
            await client.session.ws_connect(f"{url}/ws", headers=BEARER)

        assert rejected.value.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError) as rejected:
            await client.session.ws_connect(f"{url}/ws")

        assert rejected.value.status == 401
        cross_origin = {
            "Cookie": f"moorage-access-token={ACCESS_TOKEN}",
            "Origin": "https://evil.example",
        }
        with pytest.raises(aiohttp.WSServerHandshakeError) as rejected:
            await client.session.ws_connect(f"{url}/ws", headers=cross_origin)

        assert rejected.value.headers["x-moorage-error"].startswith("A page of")


async def test_slow_reader_slows_a_websocket_down(tmp_path):
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        while True:
            await socket.send_bytes(b"x" * 65536)
            written += 65536

    async with serving_app(tmp_path, pour) as (client, _):
        reader, writer = await asyncio.open_connection(*client.proxy.address)
        head = (
            f"GET /apps/{ID}/lab/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            f"{ACCESS_TOKEN}\r\n"
        )
        head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        head += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        await until(lambda: written)
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.5)  # long enough to see that nothing more is written

        assert 0 < written < 64 * MIB
        for _ in range(200):
            await reader.readexactly(65536)

        assert written >= 200 * 65536, "continues once the client reads"
        writer.close()


async def test_dying_app_and_revoked_access_token_end_a_websocket(tmp_path):
    async def die(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        request.transport.abort()
        return socket

    async with serving_app(tmp_path, die) as (client, url):
        async with client.session.ws_connect(f"{url}/ws", headers=BEARER) as socket:
            await socket.send_str("now")
            assert (await socket.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)
            assert socket.close_code == 1006

        async with client.session.ws_connect(f"{url}/ws", headers=BEARER) as socket:
            await client.manager.publish(next_table(client.manager.table, access_tokens=()))
            async with asyncio.timeout(5):
                assert (await socket.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)


async def test_disconnecting_client_ends_its_websocket_at_the_app(tmp_path):
    disconnected = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        try:
            await socket.receive()
        finally:
            disconnected.set()
        return socket

    async with serving_app(tmp_path, wait) as (client, url):
        socket = await client.session.ws_connect(f"{url}/ws", headers=BEARER)
        socket.get_extra_info("socket").shutdown(SHUT_RDWR)
        async with asyncio.timeout(5):
            await disconnected.wait()


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
async def forwarded(
    url: str, access_token: str = ACCESS_TOKEN
) -> AsyncIterator[tuple[int, list[Exception]]]:
    """A local port that is forwarded through the tunnel at ``url``, and the errors so far."""
    errors: list[Exception] = []

    async with aiohttp.ClientSession() as http:

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await forward_connection(http, url, access_token, reader, writer=writer)
            except (ApiError, Unreachable) as error:
                errors.append(error)
                reset(writer.transport)
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1], errors
        finally:
            server.close()


@asynccontextmanager
async def tunnelled(home: Path, port: int) -> AsyncIterator[int]:
    """A local port that is forwarded to ``port`` through a proxy."""
    async with (
        serving(home, app_table(port, app="db", protocol="tcp")) as client,
        forwarded(f"{client.url}/tunnel/{ID}/db") as (local, _),
    ):
        yield local


async def test_tunnel_directions_end_independently(tmp_path):
    async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = hashlib.sha256()
        while data := await reader.read(65536):
            received.update(data)
        writer.write(received.digest() * 1000)  # only once the other direction has ended
        await writer.drain()

    async with (
        tcp(digest) as port,
        serving(tmp_path, app_table(port, app="db", protocol="tcp")) as client,
    ):
        async with forwarded(f"{client.url}/tunnel/{ID}/db") as (local, errors):
            for size in (0, 1, 20 * MIB):
                reader, writer = await asyncio.open_connection("127.0.0.1", local)
                writer.write(b"x" * size)
                writer.write_eof()
                assert await reader.read() == hashlib.sha256(b"x" * size).digest() * 1000
                writer.close()

        assert errors == []
        async with client.session.get(f"{client.url}/apps/{ID}/db/", headers=BEARER) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                400,
                "app_is_tcp",
            )

        async with client.session.get(f"{client.url}/tunnel/{ID}/db", headers=BEARER) as response:
            assert response.status == 426


async def test_app_that_ends_first_still_receives_from_the_client(tmp_path):
    received = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.write_eof()
        received.set_result(await reader.read())

    async with tcp(greet) as port, tunnelled(tmp_path, port) as local:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.read() == b"hello"
            writer.write(b"bye")
            writer.write_eof()
            assert await asyncio.wait_for(received, 5) == b"bye"
            writer.close()


async def test_broken_tunnel_breaks_at_both_ends(tmp_path):
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await writer.drain()
        await reader.readexactly(1)
        reset(writer.transport)

    async with (
        tcp(die) as port,
        serving(tmp_path, app_table(port, app="db", protocol="tcp")) as client,
    ):
        async with forwarded(f"{client.url}/tunnel/{ID}/db") as (local, errors):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.readexactly(4) == b"half"
            writer.write(b"x")
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)

            writer.close()

        assert [type(error) for error in errors] == [Unreachable]


async def test_slow_reader_slows_a_tunnel_down(tmp_path):
    resume = asyncio.Event()

    async def slow_reader(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await resume.wait()
        while await reader.read(MIB):
            pass
        writer.write(b"all")

    async with tcp(slow_reader) as port, tunnelled(tmp_path, port) as local:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)

            async def send() -> None:
                for _ in range(128):
                    writer.write(b"x" * MIB)
                    await writer.drain()
                writer.write_eof()

            sending = asyncio.create_task(send())
            done, _ = await asyncio.wait([sending], timeout=1.5)
            assert not done, "128 MiB were buffered on the way"
            resume.set()
            assert await asyncio.wait_for(reader.read(), 30) == b"all"
            await sending
            writer.close()


async def test_tunnel_errors_carry_status_and_cause(tmp_path):
    async with serving(tmp_path, app_table(free_port(), app="db", protocol="tcp")) as client:
        for access_token, status, text in (
            (ACCESS_TOKEN, 502, "nothing answers"),
            ("mga-bad", 401, "unknown, revoked"),
        ):
            async with forwarded(f"{client.url}/tunnel/{ID}/db", access_token) as (local, errors):
                _, writer = await asyncio.open_connection("127.0.0.1", local)
                async with asyncio.timeout(5):
                    while not errors:
                        await asyncio.sleep(0.01)

                writer.close()

            assert isinstance(errors[0], ApiError)
            assert errors[0].status == status
            assert text in str(errors[0])
