"""Wire format of SFTP version 3 (draft-ietf-secsh-filexfer-02), with OpenSSH's extensions. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

VERSION = 3
# OpenSSH's client reads and writes this much per request if the server announces it with
# `limits@openssh.com`.
MAX_PACKET = 256 * 1024 + 1024
MAX_DATA = 255 * 1024
MAX_PATH = 4096
# Sent in the first packet. This server's handles begin with these bytes, so that a relay can
# recognize them.
HANDLE_PREFIX = b"handle-prefix@moorage"


class PacketKind(IntEnum):
    INIT = 1
    VERSION = 2
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    FSTAT = 8
    SETSTAT = 9
    FSETSTAT = 10
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    RMDIR = 15
    REALPATH = 16
    STAT = 17
    RENAME = 18
    READLINK = 19
    SYMLINK = 20
    STATUS = 101
    HANDLE = 102
    DATA = 103
    NAME = 104
    ATTRS = 105
    EXTENDED = 200
    EXTENDED_REPLY = 201


class SftpStatus(IntEnum):
    OK = 0
    EOF = 1
    NO_SUCH_FILE = 2
    PERMISSION_DENIED = 3
    FAILURE = 4
    BAD_MESSAGE = 5
    OP_UNSUPPORTED = 8


class Malformed(ValueError):
    """A packet that is truncated or has an impossible value."""


class Attributes(NamedTuple):
    """None means not set. Times are in whole seconds."""

    size: int | None = None
    owner: tuple[int, int] | None = None
    mode: int | None = None
    times: tuple[int, int] | None = None


class PacketReader:
    """Reads the fields of a packet. Raises ``Malformed``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise Malformed("the packet is truncated")
        part = self._data[self._at : end]
        self._at = end
        return part

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def long(self) -> int:
        return int.from_bytes(self.take(8))

    def text(self) -> bytes:
        return self.take(self.number())

    def path(self) -> bytes:
        path = self.text()
        if b"\0" in path or len(path) > MAX_PATH:
            raise Malformed("a path contains a NUL character, or more than 4096 bytes")
        return path

    def attributes(self) -> Attributes:
        flags = self.number()
        size = self.long() if flags & 1 else None
        owner = (self.number(), self.number()) if flags & 2 else None
        mode = self.number() if flags & 4 else None
        times = (self.number(), self.number()) if flags & 8 else None

        if flags & 0x80000000:
            for _ in range(self.number()):
                self.text()
                self.text()

        return Attributes(size, owner, mode, times)

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def number(value: int) -> bytes:
    return value.to_bytes(4)


def text(value: bytes) -> bytes:
    return len(value).to_bytes(4) + value


def attributes(given: Attributes) -> bytes:
    flags = 0
    parts = b""
    if given.size is not None:
        flags = flags | 1
        parts = parts + given.size.to_bytes(8)
    if given.owner is not None:
        flags = flags | 2
        parts = parts + number(given.owner[0]) + number(given.owner[1])
    if given.mode is not None:
        flags = flags | 4
        parts = parts + number(given.mode)
    if given.times is not None:
        flags = flags | 8
        parts = parts + number(given.times[0]) + number(given.times[1])

    return number(flags) + parts


def packet(kind: PacketKind, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return (len(body) + 1).to_bytes(4) + bytes((kind,)) + body


def status(request: bytes, code: SftpStatus, message: str = "") -> bytes:
    """Encode a status. ``request``: the 4 bytes of the request's id."""
    return packet(
        PacketKind.STATUS, request, number(code), text(message.encode()[:512]), text(b"en")
    )


def names(request: bytes, entries: list[tuple[bytes, bytes, Attributes]]) -> bytes:
    """Encode names, each with its line in a long listing."""
    parts = [text(name) + text(line) + attributes(given) for name, line, given in entries]
    return packet(PacketKind.NAME, request, number(len(entries)), *parts)


def normalized(path: bytes) -> bytes:
    """Normalize to an absolute path without ``.``, ``..`` and empty parts. The root's ``..`` is the
    root."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/" + b"/".join(parts)
