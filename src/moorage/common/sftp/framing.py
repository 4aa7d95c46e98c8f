"""SFTP packets in a byte stream. Large packets are passed on in the pieces in which they arrived.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.sftp.wire import MAX_PACKET, Malformed

# The first piece of a packet has at least this many bytes, or the whole packet: its length, type
# and id, the length of the handle, and the handle's first two bytes.
HEAD = 15

Piece = bytes | memoryview


class Pieces:
    """Splits a byte stream into packets that include their lengths, each as a list of pieces."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._size = 0

    def feed(self, data: bytes) -> list[list[Piece]]:
        """Packets that ``data`` completes. Raises ``Malformed`` for a length out of bounds."""
        if self._size < HEAD and self._pieces:
            data = b"".join((*self._pieces, data))
            self._pieces = []
            self._size = 0

        rest = memoryview(data)
        found = []
        while rest:
            if not self._pieces and len(rest) < 4:
                self._keep(rest)
                break

            missing = 4 + _length(self._pieces[0] if self._pieces else rest) - self._size
            if len(rest) < missing:
                self._keep(rest)
                break

            found.append([*self._pieces, rest[:missing]])
            self._pieces = []
            self._size = 0
            rest = rest[missing:]

        return found

    def _keep(self, rest: memoryview) -> None:
        self._pieces.append(rest)
        self._size += len(rest)


class Packets:
    """Splits a byte stream into packets without their lengths."""

    def __init__(self) -> None:
        self._pieces = Pieces()

    def feed(self, data: bytes) -> list[bytes]:
        """Like ``Pieces.feed``."""
        return [whole(packet)[4:] for packet in self._pieces.feed(data)]


def whole(pieces: Sequence[Piece]) -> bytes:
    return b"".join(pieces)


def _length(head: Piece) -> int:
    size = int.from_bytes(head[:4])
    if not 1 <= size <= MAX_PACKET:
        raise Malformed(f"a packet of {size} bytes")
    return size
