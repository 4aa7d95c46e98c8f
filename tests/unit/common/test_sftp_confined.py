"""An SFTP server for one directory: nothing leads out of the directory, no matter which paths,
links, names and packets the server gets."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.common.sftp import wire
from moorage.common.sftp.confined import Root, leads_out
from moorage.common.sftp.framing import Packets
from moorage.common.sftp.server import Server
from moorage.common.sftp.wire import Attributes, Malformed, PacketKind, PacketReader, SftpStatus

SECRET = b"secret"
READ = 1
WRITE = 2
CREATE = 8
TRUNCATE = 16


@pytest.fixture(params=[False, True], ids=["openat2", "walking"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    inside = tmp_path / "inside"
    outside = tmp_path / "outside"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "s").write_bytes(SECRET)
    (inside / "file").write_bytes(b"file")

    for name, target in {
        "abs": outside / "s", "rel": "../outside/s", "dir": "../outside", "slash": "/", "loop": "loop",
        "deep": "sub/../../outside/s", "hanging": "../outside/new", "proc": "/proc/self/root",
    }.items():  # fmt: skip
        (inside / name).symlink_to(target)

    os.mkfifo(inside / "fifo")
    return Root(str(inside), by_walking=request.param)


class Client:
    """A client's requests, one by one."""

    def __init__(self, root: Root) -> None:
        self.server = Server(root)

    def ask(self, kind: PacketKind, *parts: bytes) -> tuple[PacketKind, PacketReader]:
        answer = self.server.answer(wire.packet(kind, b"id-1", *parts)[4:])
        (whole,) = Packets().feed(answer)
        reader = PacketReader(whole)
        found = PacketKind(reader.byte())
        assert reader.take(4) == b"id-1"
        return found, reader

    def status(self, kind: PacketKind, *parts: bytes) -> SftpStatus:
        found, reader = self.ask(kind, *parts)
        return SftpStatus(reader.number()) if found is PacketKind.STATUS else SftpStatus.OK

    def open(self, path: bytes, flags: int = READ) -> bytes | SftpStatus:
        found, reader = self.ask(
            PacketKind.OPEN, wire.text(path), wire.number(flags), wire.attributes(Attributes())
        )
        return reader.text() if found is PacketKind.HANDLE else SftpStatus(reader.number())

    def read(self, path: bytes) -> bytes | SftpStatus:
        handle = self.open(path)
        if isinstance(handle, SftpStatus):
            return handle
        found, reader = self.ask(
            PacketKind.READ, wire.text(handle), (0).to_bytes(8), wire.number(1000)
        )
        data = reader.text() if found is PacketKind.DATA else SftpStatus(reader.number())
        assert self.status(PacketKind.CLOSE, wire.text(handle)) is SftpStatus.OK
        return data


LEADING_OUT = [
    b"../outside/s", b"/../outside/s", b"abs", b"rel", b"dir/s", b"slash/etc/passwd", b"deep", b"loop",
    b"sub/../../outside/s", b"proc/etc/passwd", b"fifo", b"", b"/", b"..", b"sub",
]  # fmt: skip


@pytest.mark.parametrize("path", LEADING_OUT)
def test_no_path_reads_or_writes_outside(root: Root, path: bytes, tmp_path: Path) -> None:
    client = Client(root)
    assert isinstance(client.read(path), SftpStatus)
    for flags in (WRITE, WRITE | CREATE, WRITE | CREATE | TRUNCATE):
        handle = client.open(path, flags)
        if isinstance(handle, bytes):
            raise AssertionError(f"{path!r} was opened: {handle!r}")
    assert {one.name: one.read_bytes() for one in (tmp_path / "outside").iterdir()} == {"s": SECRET}


def test_links_to_nothing_are_not_written_through(root: Root, tmp_path: Path) -> None:
    assert isinstance(Client(root).open(b"hanging", WRITE | CREATE), SftpStatus)
    assert not (tmp_path / "outside" / "new").exists()


@pytest.mark.parametrize(
    "name", [b"dir/new", b"../new", b"slash/tmp/new", b"..", b".", b"/", b"", b"sub/.."]
)
def test_no_name_is_made_removed_or_moved_outside(root: Root, name: bytes, tmp_path: Path) -> None:
    client = Client(root)
    path = wire.text(name)
    none = wire.attributes(Attributes())
    victim = wire.text(name.replace(b"new", b"s"))
    before = sorted(tmp_path.rglob("*"))
    assert client.status(PacketKind.MKDIR, path, none) is not SftpStatus.OK
    assert client.status(PacketKind.RMDIR, path) is not SftpStatus.OK
    assert client.status(PacketKind.REMOVE, victim) is not SftpStatus.OK
    assert client.status(PacketKind.RENAME, wire.text(b"file"), path) is not SftpStatus.OK
    assert client.status(PacketKind.RENAME, victim, wire.text(b"taken")) is not SftpStatus.OK
    assert client.status(PacketKind.SYMLINK, wire.text(b"file"), path) is not SftpStatus.OK
    for extension in (b"posix-rename@openssh.com", b"hardlink@openssh.com"):
        parts = wire.text(extension), victim, wire.text(b"taken")
        assert client.status(PacketKind.EXTENDED, *parts) is not SftpStatus.OK

    assert sorted(tmp_path.rglob("*")) == before


def test_attributes_change_files_inside_only_and_give_no_rights(root: Root, tmp_path: Path) -> None:
    client = Client(root)
    mode = wire.attributes(Attributes(mode=0o6777, times=(1, 2)))
    for path in (b"abs", b"rel", b"dir/s", b"fifo"):
        assert client.status(PacketKind.SETSTAT, wire.text(path), mode) is not SftpStatus.OK
    assert (tmp_path / "outside" / "s").stat().st_mode & 0o777 == 0o644
    assert client.status(PacketKind.SETSTAT, wire.text(b"file"), mode) is SftpStatus.OK
    found = (tmp_path / "inside" / "file").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime) == (0o777, 2)


def test_a_race_with_whoever_changes_the_tree_never_leads_out(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    outside = tmp_path / "outside"
    (inside / "real").mkdir(parents=True)
    (inside / "real" / "s").write_bytes(b"own")
    outside.mkdir()
    (outside / "s").write_bytes(SECRET)
    (inside / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("real", "link"):
                (inside / "now").unlink(missing_ok=True)
                (inside / "now").symlink_to(name)
                os.rename(inside / "now", inside / "door")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        client = Client(Root(str(inside)))
        found = {client.read(b"door/s") for _ in range(3000)}
    finally:
        stop.set()
        swapper.join()

    assert SECRET not in found
    assert found <= {
        b"own",
        SftpStatus.PERMISSION_DENIED,
        SftpStatus.NO_SUCH_FILE,
        SftpStatus.FAILURE,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"\xff\xfe name", SftpStatus.OK),
        ("\u202e name".encode(), SftpStatus.OK),
        (b"a" * 255, SftpStatus.OK),
        (b"a" * 256, SftpStatus.FAILURE),
        (b"a\0b", SftpStatus.BAD_MESSAGE),
        (b"a/" * 3000, SftpStatus.BAD_MESSAGE),
        (b"-rf", SftpStatus.OK),
        (b"new\nline", SftpStatus.OK),
    ],
)
def test_names_made_to_hurt(tmp_path: Path, name: bytes, expected: SftpStatus) -> None:
    client = Client(Root(str(tmp_path)))
    handle = client.open(name, WRITE | CREATE)
    assert (handle if isinstance(handle, SftpStatus) else SftpStatus.OK) is expected
    if expected is SftpStatus.OK:
        _, opened = client.ask(PacketKind.OPENDIR, wire.text(b"/"))
        _, listed = client.ask(PacketKind.READDIR, wire.text(opened.text()))
        assert listed.number() == 3
        assert name in listed.rest()


def test_files_are_written_at_offsets_and_handles_are_bounded(tmp_path: Path) -> None:
    client = Client(Root(str(tmp_path)))
    handle = client.open(b"big", READ | WRITE | CREATE)
    assert isinstance(handle, bytes)
    for offset, data in ((5, b"world"), (0, b"hello")):
        status = client.status(
            PacketKind.WRITE, wire.text(handle), offset.to_bytes(8), wire.text(data)
        )
        assert status is SftpStatus.OK

    assert client.read(b"big") == b"helloworld"
    opened = [client.open(b"big") for _ in range(300)]
    assert [isinstance(one, bytes) for one in opened].count(True) == 255
    client.server.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(packet=st.binary(min_size=1, max_size=80))
def test_any_packet_is_answered_or_malformed(tmp_path: Path, packet: bytes) -> None:
    server = Server(Root(str(tmp_path)))
    try:
        assert server.answer(packet)
    except Malformed:
        pass
    finally:
        server.close()
        for one in tmp_path.iterdir():
            one.rmdir() if one.is_dir() else one.unlink()


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1), st.integers(1, 7))
def test_packets_are_found_however_the_stream_is_cut(bodies: list[bytes], step: int) -> None:
    stream = b"".join(len(body).to_bytes(4) + body for body in bodies)
    packets = Packets()
    found = [
        one for at in range(0, len(stream), step) for one in packets.feed(stream[at : at + step])
    ]
    assert found == bodies


@pytest.mark.parametrize("size", [0, 1 << 31])
def test_a_length_out_of_bounds_is_malformed(size: int) -> None:
    with pytest.raises(Malformed):
        Packets().feed(size.to_bytes(4) + b"x" * 10)


@pytest.mark.parametrize(
    ("link", "target", "expected"),
    [
        (b"/a/b", b"c", False), (b"/a/b", b"../c", False), (b"/a/b", b"../../c", True), (b"/b", b"..", True),
        (b"/b", b"/etc", True), (b"b", b"a/../..", True), (b"/a/b", b"./x/../y", False),
    ],
)  # fmt: skip
def test_links_that_lead_out(link: bytes, target: bytes, expected: bool) -> None:
    assert leads_out(link, target) is expected


@given(st.binary(max_size=60))
def test_a_normalized_path_has_nothing_to_climb(path: bytes) -> None:
    parts = wire.normalized(path).split(b"/")
    assert parts[0] == b""
    assert b".." not in parts
    assert b"." not in parts
