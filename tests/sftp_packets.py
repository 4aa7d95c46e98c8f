"""SFTP packets from a hostile client: requests in any order, with values at their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from moorage.common.sftp import wire
from moorage.common.sftp.wire import PacketKind

PATHS = st.sampled_from(
    [
        *(
            b"",
            b"/",
            b".",
            b"..",
            b"a",
            b"b",
            b"a/b",
            b"/a/../b",
            b"//a",
            b"d",
            b"d/x",
            b"link",
            b"out",
        ),
        *(
            b"../outside",
            b"/../outside",
            b"/etc/passwd",
            b"a\0b",
            b"\xff\xfe",
            b"x" * 4097,
            b"d/" * 2000,
        ),
        *(
            b"/vision",
            b"/vision/one",
            b"/vision/one/a",
            b"/vision/theirs/a",
            b"/vision/../speech",
            b"/%2F",
        ),
    ]
)
NUMBERS = st.sampled_from([0, 1, 2, 3, 8, 26, 63, 100, 1 << 16, 1 << 31, (1 << 32) - 1])
LONGS = st.sampled_from([0, 1, 5, 1 << 20, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
ATTRIBUTES = st.builds(
    lambda flags, size, numbers: (
        wire.number(flags) + size.to_bytes(8) + b"".join(map(wire.number, numbers))
    ),
    st.sampled_from([0, 1, 4, 5, 8, 13, 15, 0x80000000, 0xFFFFFFFF]),
    # There are no large sizes, because the tests write to the disk of the machine that runs them.
    st.sampled_from([0, 1, 4096, 1 << 63, (1 << 64) - 1]),
    st.lists(NUMBERS, max_size=6),
)
EXTENSIONS = st.sampled_from(
    [
        *(
            b"posix-rename@openssh.com",
            b"hardlink@openssh.com",
            b"fsync@openssh.com",
            b"statvfs@openssh.com",
        ),
        *(b"limits@openssh.com", b"copy-data", b""),
    ]
)


@dataclass(frozen=True)
class Handle:
    """Stands for the handle returned for the request with this number, counted from the first
    one."""

    number: int


Part = bytes | Handle
_TEXTS = st.builds(wire.text, PATHS)
_HANDLES = st.builds(Handle, st.integers(0, 3)) | st.builds(wire.text, st.binary(max_size=8))
_FIELDS = st.lists(
    _TEXTS | _HANDLES | st.builds(wire.number, NUMBERS) | ATTRIBUTES | st.binary(max_size=9),
    max_size=4,
)


def _made(kind: int, *parts: st.SearchStrategy[Part]) -> st.SearchStrategy[tuple[int, list[Part]]]:
    return st.tuples(st.just(kind), st.tuples(*parts).map(list))


_OFFSET = st.builds(lambda value: value.to_bytes(8), LONGS)
_NUMBER = st.builds(wire.number, NUMBERS)
_DATA = st.builds(wire.text, st.binary(max_size=20))
REQUESTS: st.SearchStrategy[tuple[int, list[Part]]] = st.one_of(
    _made(PacketKind.OPEN, _TEXTS, _NUMBER, ATTRIBUTES),
    *(
        _made(kind, _TEXTS)
        for kind in (
            PacketKind.OPENDIR,
            PacketKind.LSTAT,
            PacketKind.STAT,
            PacketKind.REALPATH,
            PacketKind.READLINK,
            PacketKind.REMOVE,
            PacketKind.RMDIR,
        )
    ),
    _made(PacketKind.MKDIR, _TEXTS, ATTRIBUTES),
    _made(PacketKind.READ, _HANDLES, _OFFSET, _NUMBER),
    _made(PacketKind.WRITE, _HANDLES, st.just((3).to_bytes(8)), _DATA),
    _made(PacketKind.READDIR, _HANDLES),
    _made(PacketKind.FSETSTAT, _HANDLES, ATTRIBUTES),
    _made(PacketKind.SETSTAT, _TEXTS, ATTRIBUTES),
    _made(PacketKind.SYMLINK, _TEXTS, _TEXTS),
    _made(PacketKind.RENAME, _TEXTS, _TEXTS),
    _made(PacketKind.EXTENDED, st.builds(wire.text, EXTENSIONS), _TEXTS | _HANDLES, _TEXTS),
    st.tuples(st.sampled_from([*map(int, PacketKind), 0, 99, 255]), _FIELDS),
)
_OPENED: list[tuple[int, list[Part]]] = [
    (PacketKind.OPEN, [wire.text(b"a"), wire.number(3), wire.number(0)]),
    (PacketKind.READ, [Handle(0), (0).to_bytes(8), wire.number(100)]),
    (PacketKind.EXTENDED, [wire.text(b"limits@openssh.com")]),
]
SESSIONS = st.builds(
    lambda first, rest: [*first, *rest],
    st.sampled_from([[], _OPENED]),
    st.lists(REQUESTS, max_size=10),
)


def packet_of(number: int, kind: int, parts: Sequence[Part], handles: Sequence[bytes]) -> bytes:
    """The packet without its length. ``handles``: the handles returned so far."""
    body = bytearray([kind])
    if kind != PacketKind.INIT:
        body += wire.number(number)

    for part in parts:
        if isinstance(part, Handle):
            body += wire.text(handles[part.number % len(handles)] if handles else b"none")
        else:
            body += part

    return bytes(body)
