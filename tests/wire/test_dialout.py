"""Dial-out over real sockets: streams, back-pressure, cancellation in both directions, stream ends,
identities."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path

import pytest
from dialout_harness import Site, authority, identity, site, until

from moorage.common.aio.sockets import reset
from moorage.common.dialout import frames

pytestmark = pytest.mark.timeout(60)


async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read())[::-1])
    writer.close()


async def drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


class Source:
    """A kernel that sends endlessly, and records how its connections end."""

    def __init__(self) -> None:
        self.sent = 0
        self.ends = list[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65_536))
                self.sent += 65_536
                await writer.drain()
        except ConnectionError as error:
            self.ends.append(type(error).__name__)


async def test_half_closed_streams_carry_data_of_any_size(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        port = await found.kernel(reverse)

        async def exchange(size: int) -> None:
            data = hashlib.sha256(str(size).encode()).digest() * (size // 32)
            reader, writer = await found.open(port)
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            assert await reader.read() == data[::-1]
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(
            *(exchange(size) for size in (0, 32, 65_536, 96_000, 3 * frames.WINDOW))
        )
        (connection,) = found.listener.connections(found.host)
        await until("no stream is left", lambda: connection.streams == 0)


async def test_reader_that_stops_stops_the_kernel_and_no_other_stream(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        source = Source()
        slow = await found.kernel(source.serve)
        other = await found.kernel(reverse)
        reader, writer = await found.open(slow)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()

        # The kernel's program, its socket, the agent, and the window.
        most = 16 * frames.WINDOW
        await until("it has begun", lambda: bool(source.sent))
        last = -1
        while source.sent != last:
            last = source.sent
            await asyncio.sleep(0.2)

        assert 0 < last < most
        fast_reader, fast_writer = await found.open(other)
        fast_writer.write(b"stressed")
        fast_writer.write_eof()
        assert await fast_reader.read() == b"desserts"
        writer.transport.resume_reading()
        received = 0
        while received <= 2 * most:
            received += len(await reader.read(1 << 20))

        fast_writer.close()
        writer.transport.abort()
        await until("the kernel's connection is reset", lambda: bool(source.ends))


async def test_kernel_that_stops_reading_stops_the_writer(tmp_path: Path) -> None:
    gate = asyncio.Event()
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await gate.wait()
        while chunk := await reader.read(1 << 20):
            received += len(chunk)
        writer.close()

    async with site(tmp_path) as found:
        reader, writer = await found.open(await found.kernel(serve))
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(40):
                writer.write(bytes(frames.WINDOW))
                sent += frames.WINDOW
                await writer.drain()
            writer.write_eof()

        task = asyncio.create_task(send())
        last = -1
        while sent != last:
            last = sent
            await asyncio.sleep(0.2)

        assert last < 20 * frames.WINDOW
        gate.set()
        await task
        assert await reader.read() == b""
        assert received == 40 * frames.WINDOW
        writer.close()


async def test_reset_of_the_kernel_is_a_reset_and_no_end(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"half of")
        await writer.drain()
        reset(writer.transport)

    async with site(tmp_path) as found:
        reader, writer = await found.open(await found.kernel(serve))
        writer.write(b"x")
        with pytest.raises(ConnectionError):
            await drain(reader)

        writer.close()


async def test_only_ports_of_kernels_are_opened(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        port = await found.kernel(reverse)
        found.ports.discard(port)
        with pytest.raises(
            ConnectionRefusedError, match=f"no kernel of this agent has port {port}"
        ):
            await found.open(port)

        found.ports.add(1)
        with pytest.raises(ConnectionRefusedError, match=r"Connect call failed|refused"):
            await found.open(1)


async def test_cancelled_opening_leaves_nothing_behind(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        port = await found.kernel(Source().serve)
        kept = await found.open(port)
        (connection,) = found.listener.connections(found.host)

        for delay in (0.0, 0.0005, 0.001, 0.002, 0.005):
            task = asyncio.create_task(found.open(port))
            await asyncio.sleep(delay)
            task.cancel()

            try:
                _, writer = await task
            except asyncio.CancelledError:
                continue

            writer.transport.abort()

        await until("one stream is left", lambda: connection.streams == 1)
        kept[1].transport.abort()


async def test_broken_connection_breaks_its_streams_and_is_dialed_again(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        source = Source()
        port = await found.kernel(source.serve)
        reader, _ = await found.open(port)
        (connection,) = found.listener.connections(found.host)
        connection.end("for the test")
        with pytest.raises(ConnectionError):
            await drain(reader)

        await until("the kernel's connection is reset", lambda: bool(source.ends))
        # Waits for the next connection.
        other = await found.kernel(reverse)
        reader, writer = await found.open(other)
        writer.write(b"abc")
        writer.write_eof()
        assert await reader.read() == b"cba"


async def test_proxy_that_restarts_is_dialed_again(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        port = await found.kernel(reverse)
        kept = await found.open(port)
        number = found.listener.address[1]
        await found.listener.__aexit__()
        await found.listen(port=number)
        _, writer = await found.open(port)
        writer.close()
        assert kept[1].is_closing()


async def test_agent_proves_who_it_is_by_its_certificate(tmp_path: Path) -> None:
    ca = authority()
    async with site(tmp_path, connected=False) as found:
        await found.listen(identity(ca, "proxy", "proxy-1", "p1"))
        port = await found.kernel(reverse)
        agent = found.dial(identity(ca, "agent", "node-1", "a1"))
        assert found.host == "node-1.a1.agent.invalid"
        reader, writer = await found.open(port)
        writer.write(b"abc")
        writer.write_eof()
        assert await reader.read() == b"cba"

        # The same node after it rejoined: it counts as another host, so a revoked certificate gets
        # no access to it.
        found.dial(identity(ca, "agent", "node-1", "a2"))
        await until("both are connected", lambda: len(found.listener.hosts) == 2)
        assert agent.connected


async def refused(found: Site, why: str) -> None:
    assert found.agent is not None
    agent = found.agent
    await until(f"refused: {why}", lambda: why in agent.undialed.get(found.address, ""))
    assert not agent.connected
    assert found.listener.hosts == ()


async def test_forged_agents_are_refused(tmp_path: Path) -> None:
    ca = authority()
    async with site(tmp_path, connected=False) as found:
        await found.listen(identity(ca, "proxy", "proxy-1", "p1"))
        found.dial(identity(ca, "agent", "node-2", "a2"), name="node-1")
        await refused(found, "this certificate is for agent 'node-2'")
        found.dial(identity(ca, "proxy", "node-1", "a3"))
        await refused(found, "this certificate is for proxy 'node-1'")
        found.dial(identity(authority(), "agent", "node-1", "a1"))
        await refused(found, "certificate verify failed")
        found.dial(None)  # without TLS
        await refused(found, "")


async def test_revoked_agent_is_cut_off_and_refused(tmp_path: Path) -> None:
    ca = authority()
    async with site(tmp_path, connected=False) as found:
        await found.listen(identity(ca, "proxy", "proxy-1", "p1"))
        found.connector.revoked({"a0"})
        port = await found.kernel(silent)
        found.dial(identity(ca, "agent", "node-1", "a1"))
        reader, _writer = await found.open(port)
        found.connector.revoked({"a0", "a1"})
        with pytest.raises(ConnectionResetError):
            await reader.read()

        await refused(found, "was revoked")
        found.dial(identity(ca, "agent", "node-1", "a2"))
        await found.open(port)  # it has rejoined


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_revoked_proxy_is_left_at_once_and_not_dialed_again(tmp_path: Path) -> None:
    """The proxy's owner would reach the agent's kernels over connections that the agent has
    dialed."""
    ca = authority()
    async with site(tmp_path, connected=False) as found:
        await found.listen(identity(ca, "proxy", "proxy-1", "p1"))
        port = await found.kernel(silent)
        agent = found.dial(identity(ca, "agent", "node-1", "a1"))
        streams = []
        for addresses in ([found.address], []):
            streams.append(await found.open(port))
            agent.set_proxies(addresses, ["p0"])

        # Manager and agent have already left it, but the connection stays while it has streams.
        agent.set_proxies([], ["p0", "p1"])
        for reader, _ in streams:
            with pytest.raises(ConnectionResetError):
                await reader.read()

        await until("no connection", lambda: not found.listener.hosts)
        agent.set_proxies([found.address], ["p1"])
        await refused(found, "was revoked")


async def test_agent_connects_to_no_other_peer_than_a_proxy(tmp_path: Path) -> None:
    ca = authority()
    async with site(tmp_path, connected=False) as found:
        # An agent's certificate is only for clients.
        await found.listen(identity(ca, "proxy", "node-9", "a9", signs_as="agent"))
        found.dial(identity(ca, "agent", "node-1", "a1"))
        await refused(found, "certificate verify failed")


async def test_wrong_link_token_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, connected=False) as found:
        await found.listen()
        found.dial(token="wrong")
        await refused(found, "wrong link token")


async def test_two_addresses_of_one_proxy_are_one_connection(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        port = await found.kernel(reverse)
        agent = found.agent
        assert agent is not None
        await until("the first is connected", lambda: agent.connected == (found.address,))
        (first,) = found.listener.connections(found.host)
        other = found.address.replace("127.0.0.1", "localhost")
        agent.set_proxies([found.address, other])
        await until("it was tried", lambda: "another address" in agent.why(other))
        assert agent.undialed == {}

        for _ in range(20):  # no stream uses the second connection, which ends
            reader, writer = await found.open(port)
            writer.write(b"stressed")
            writer.write_eof()
            assert await reader.read() == b"desserts"
            writer.close()
            assert found.listener.connections(found.host) == (first,)

        assert (agent.connected, agent.undialed) == ((found.address,), {}), "no failure is reported"
        # The proxy is known only by the other address, so new streams use that one at once.
        agent.set_proxies([other])
        await until("the other is connected", lambda: agent.connected == (other,))
        await until(
            "it is the newest", lambda: found.listener.connections(found.host)[-1] is not first
        )


async def test_other_address_is_used_once_the_first_connection_is_lost(tmp_path: Path) -> None:
    async with site(tmp_path) as found:
        agent = found.agent
        other = found.address.replace("127.0.0.1", "localhost")
        assert agent is not None
        agent.set_proxies([found.address, other])
        await until("one is connected", lambda: len(agent.connected) == 1)

        for _ in range(5):
            await until("it is known", lambda: len(found.listener.connections(found.host)) == 1)
            (connection,) = found.listener.connections(found.host)
            connection.end("cut")
            lost = connection.peer, connection
            await until(
                "it is lost", lambda lost=lost: lost[1] not in found.listener.connections(lost[0])
            )
            await until("one is connected again", lambda: len(agent.connected) == 1)

        await until("only one", lambda: len(found.listener.connections(found.host)) == 1)
