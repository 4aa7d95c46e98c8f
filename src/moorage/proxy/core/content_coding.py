"""Content codings of answers: the codings offered to replicas, and decompression. Pure.

An answer is forwarded to its client as compressed by the replica. To count its tokens, the proxy
also decompresses it piece by piece as it arrives. Replicas are therefore offered only gzip, which
the standard library can read; every client accepts an uncompressed answer.
"""

from __future__ import annotations

import zlib
from typing import Final

_READ: Final = frozenset({"gzip", "x-gzip"})
_OFFERED: Final = _READ | {"identity"}
_GZIP: Final = 16 + zlib.MAX_WBITS
# Bytes of a decompressed piece, a few milliseconds of work. Models' answers compress to a tenth,
# rarely to a thirtieth; higher ratios are deliberate.
_PIECE = 1 << 20
_RATIO = 32
# gzip members in one piece: a compressor writes one in total, or one for each of its own pieces.
_MOST_MEMBERS: Final = 64


def offered(accepted: str) -> str:
    """The value of Accept-Encoding for a replica: the codings accepted by the client that can be
    read here."""
    kept = []
    takes_any = False
    for offer in accepted.split(","):
        coding, _, weight = offer.strip().partition(";")
        name = coding.strip().lower()
        takes_any = takes_any or (name == "*" and not _is_zero(weight))
        if name in _OFFERED:
            kept.append(offer.strip())

    if takes_any and not any(offer.partition(";")[0].strip().lower() in _READ for offer in kept):
        kept.append("gzip")

    return ", ".join(kept) or "identity"


def _is_zero(weight: str) -> bool:
    name, _, value = weight.partition("=")
    return name.strip().lower() == "q" and not value.strip().strip("0.")


def is_plain(coding: str) -> bool:
    """Whether an answer is uncompressed. ``coding``: the value of Content-Encoding, empty if there
    is none."""
    return not coding or coding.strip().lower() == "identity"


class Unpacker:
    """A reader for one compressed answer, as far as it can be read.

    ``is_lost``: the rest cannot be read, because the coding was not offered, the data is corrupt,
    or it is so dense that reading it would block other requests.
    """

    __slots__ = ("_gzip", "is_lost")

    def __init__(self, coding: str) -> None:
        self._gzip = zlib.decompressobj(_GZIP)
        self.is_lost = coding.strip().lower() not in _READ

    def feed(self, piece: bytes) -> bytes:
        """Return the decompressed bytes of ``piece``."""
        if self.is_lost:
            return b""

        found = []
        room = max(_PIECE, _RATIO * len(piece))
        members = 0
        while piece and not self.is_lost:
            if self._gzip.eof:
                self._gzip = zlib.decompressobj(_GZIP)
                members += 1

            try:
                part = self._gzip.decompress(piece, room)
            except zlib.error:
                self.is_lost = True
                break

            found.append(part)
            room -= len(part)
            piece = self._gzip.unused_data
            self.is_lost = bool(self._gzip.unconsumed_tail) or room <= 0 or members > _MOST_MEMBERS

        return b"".join(found)
