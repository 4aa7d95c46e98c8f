"""SFTP's virtual root over real file servers: which server each entry belongs to, and what happens
when a server is lost."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.sftp_packets import SESSIONS, Part, packet_of

from moorage.common.model.errors import Forbidden, NotFound
from moorage.common.sftp import wire
from moorage.common.sftp.confined import Root
from moorage.common.sftp.framing import Packets, Piece
from moorage.common.sftp.server import Server
from moorage.common.sftp.wire import Attributes, Malformed, PacketKind, PacketReader, SftpStatus
from moorage.proxy.ssh.router import SftpRouter


class InProcess:
    """A file server, as a command."""

    def __init__(self, folder: Path) -> None:
        self._server = Server(Root(str(folder)))
        self._packets = Packets()
        self.output: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.silent = False

    async def send(self, pieces: Sequence[Piece]) -> None:
        for packet in self._packets.feed(b"".join(pieces)):
            if not self.silent:
                self.output.put_nowait(bytes(self._server.answer(packet)))

    async def read(self) -> bytes | None:
        return await self.output.get()


class Tree:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: dict[str, InProcess] = {}

    async def list(self, project: str) -> list[str]:
        sessions = {"": ["vision", "speech"], "vision": ["one", "two"], "speech": []}
        return sessions[project]

    @asynccontextmanager
    async def open(self, session: str, hello: bytes) -> AsyncIterator[InProcess]:
        if session == "vision/theirs":
            raise Forbidden("it belongs to another user")
        if session not in ("vision/one", "vision/two"):
            raise NotFound("there is no such session")

        folder = self._folder / session.replace("/", "-")
        folder.mkdir(exist_ok=True)
        made = self.opened[session] = InProcess(folder)
        await made.send([hello])
        await made.read()
        yield self.opened[session]


class Client:
    def __init__(self, folder: Path) -> None:
        self.tree = Tree(folder)
        self.packets = Packets()
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()
        self.router = SftpRouter(self.tree, self._take, self.room)
        self._ids = 0

    def _take(self, data: bytes) -> None:
        for packet in self.packets.feed(data):
            self.answers.put_nowait(packet)

    async def send(self, kind: PacketKind, *parts: bytes) -> bytes:
        self._ids += 1
        request = wire.number(self._ids)
        await self.router.feed(wire.packet(kind, request, *parts))
        return request

    async def ask(self, kind: PacketKind, *parts: bytes) -> tuple[PacketKind, PacketReader]:
        request = await self.send(kind, *parts)
        reader = PacketReader(await asyncio.wait_for(self.answers.get(), 5))
        found = PacketKind(reader.byte())
        assert reader.take(4) == request
        return found, reader

    async def status(self, kind: PacketKind, *parts: bytes) -> SftpStatus:
        found, reader = await self.ask(kind, *parts)
        return SftpStatus(reader.number()) if found is PacketKind.STATUS else SftpStatus.OK

    async def open(self, path: bytes, flags: int) -> bytes:
        _, reader = await self.ask(
            PacketKind.OPEN, wire.text(path), wire.number(flags), wire.attributes(Attributes())
        )
        return reader.text()

    async def names(self, path: bytes) -> list[bytes]:
        _, reader = await self.ask(PacketKind.OPENDIR, wire.text(path))
        handle = reader.text()
        _, reader = await self.ask(PacketKind.READDIR, wire.text(handle))
        found = []
        for _ in range(reader.number()):
            found.append(reader.text())
            reader.text()
            reader.attributes()

        assert await self.status(PacketKind.READDIR, wire.text(handle)) is SftpStatus.EOF
        assert await self.status(PacketKind.CLOSE, wire.text(handle)) is SftpStatus.OK
        return found


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    made = Client(tmp_path)
    yield made
    await made.router.close()


async def test_root_projects_and_files_are_one_tree(client: Client, tmp_path: Path) -> None:
    assert await client.names(b"/") == [b".", b"..", b"vision", b"speech"]
    assert await client.names(b"/vision") == [b".", b"..", b"one", b"two"]
    for session, data in ((b"one", b"1"), (b"two", b"2")):
        handle = await client.open(b"/vision/x/../" + session + b"/file", 2 | 8)
        parts = wire.text(handle), (0).to_bytes(8), wire.text(data)
        assert await client.status(PacketKind.WRITE, *parts) is SftpStatus.OK
        assert await client.names(b"vision/" + session) == [b".", b"..", b"file"]
    assert (tmp_path / "vision-one" / "file").read_bytes() == b"1"
    assert (tmp_path / "vision-two" / "file").read_bytes() == b"2"


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        (b"/", PacketKind.STAT, SftpStatus.OK),
        (b"/vision", PacketKind.LSTAT, SftpStatus.OK),
        (b"/vision/one", PacketKind.STAT, SftpStatus.OK),
        (b"/vision/one/../two", PacketKind.STAT, SftpStatus.OK),
        (b"/vision/one/absent", PacketKind.STAT, SftpStatus.NO_SUCH_FILE),
        (b"/other", PacketKind.STAT, SftpStatus.NO_SUCH_FILE),
        (b"/vision/absent", PacketKind.STAT, SftpStatus.NO_SUCH_FILE),
        (b"/vision/theirs", PacketKind.STAT, SftpStatus.PERMISSION_DENIED),
        (b"/vision/theirs/file", PacketKind.REMOVE, SftpStatus.PERMISSION_DENIED),
        (b"/vision", PacketKind.RMDIR, SftpStatus.PERMISSION_DENIED),
        (b"/", PacketKind.REMOVE, SftpStatus.PERMISSION_DENIED),
        (b"/\xff", PacketKind.STAT, SftpStatus.NO_SUCH_FILE),
        (b"/vision/one/a\0b", PacketKind.STAT, SftpStatus.BAD_MESSAGE),
        (b"/vision/one/" + b"a" * 5000, PacketKind.STAT, SftpStatus.BAD_MESSAGE),
    ],
)
async def test_paths(client: Client, path: bytes, kind: PacketKind, expected: SftpStatus) -> None:
    assert await client.status(kind, wire.text(path)) is expected


async def test_nothing_moves_from_one_session_to_another(client: Client) -> None:
    old = wire.text(b"/vision/one/a")
    new = wire.text(b"/vision/two/a")
    assert await client.status(PacketKind.RENAME, old, new) is SftpStatus.FAILURE
    for extension in (b"posix-rename@openssh.com", b"hardlink@openssh.com"):
        assert (
            await client.status(PacketKind.EXTENDED, wire.text(extension), old, new)
            is SftpStatus.FAILURE
        )


async def test_handles_of_nobody_are_refused(client: Client) -> None:
    await client.names(b"/vision/one")
    for handle in (
        b"",
        b"\x00\x07\x00\x00\x00\x01",
        b"\xff\xff\x00\x00\x00\x09",
        b"\x00\x00\x00\x00\x00\x99",
    ):
        status = await client.status(
            PacketKind.READ, wire.text(handle), (0).to_bytes(8), wire.number(1)
        )
        assert status is SftpStatus.BAD_MESSAGE


async def test_requests_at_a_lost_server_fail_and_others_go_on(client: Client) -> None:
    assert await client.status(PacketKind.STAT, wire.text(b"/vision/one")) is SftpStatus.OK
    lost = client.tree.opened["vision/one"]
    lost.silent = True
    request = await client.send(PacketKind.STAT, wire.text(b"/vision/one/file"))
    lost.output.put_nowait(None)
    answer = PacketReader(await asyncio.wait_for(client.answers.get(), 5))
    assert (answer.byte(), answer.take(4), answer.number()) == (
        PacketKind.STATUS,
        request,
        SftpStatus.FAILURE,
    )
    assert await client.status(PacketKind.STAT, wire.text(b"/vision/two")) is SftpStatus.OK
    assert (
        await client.status(PacketKind.STAT, wire.text(b"/vision/one")) is SftpStatus.OK
    )  # through a new server
    assert client.tree.opened["vision/one"] is not lost


async def test_answers_wait_for_a_slow_client(client: Client) -> None:
    await client.names(b"/vision/one")
    client.room.clear()
    await client.send(PacketKind.STAT, wire.text(b"/vision/one"))
    await asyncio.sleep(0)
    assert client.answers.empty()
    client.room.set()
    assert await asyncio.wait_for(client.answers.get(), 5)


@examples(60)
@given(SESSIONS)
@example([(99, [wire.text(b"/vision/one")])])
def test_any_session_over_the_tree_is_answered_or_refused(
    session: list[tuple[int, list[Part]]],
) -> None:
    """And the next client is served."""

    async def run(folder: Path) -> None:
        client = Client(folder)
        handles: list[bytes] = []
        try:
            for number, (kind, parts) in enumerate(session):
                body = packet_of(number, kind, parts, handles)
                await client.router.feed(len(body).to_bytes(4) + body)
                if kind not in (
                    PacketKind.INIT,
                    PacketKind.READ,
                    PacketKind.WRITE,
                ):  # those may belong to no one
                    answer = await asyncio.wait_for(client.answers.get(), 5)
                    if answer[0] == PacketKind.HANDLE:
                        handles.append(answer[9:])
        except Malformed:
            pass

        await client.router.close()
        other = Client(folder)
        assert await other.names(b"/") == [b".", b"..", b"vision", b"speech"]
        await other.router.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@given(st.lists(st.binary(min_size=5, max_size=60), max_size=5))
def test_any_packets_are_answered_or_refused(bodies: list[bytes]) -> None:
    async def run() -> None:
        client = Client(Path("/nonexistent"))
        try:
            for body in bodies:
                await client.router.feed(len(body).to_bytes(4) + body)
        except Malformed:
            pass
        await client.router.close()

    asyncio.run(run())
