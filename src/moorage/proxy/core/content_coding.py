"""Content codings of answers: which ones a replica is offered, and what is in a compressed answer.
Pure.

An answer passes to its client as the replica has compressed it. To count its tokens it is
decompressed beside that, piece by piece, as it comes. So replicas are offered no other coding than
gzip, which the standard library reads: every client takes an answer that is not compressed.
"""

from __future__ import annotations

import zlib
from typing import Final

_READ: Final = frozenset({"gzip", "x-gzip"})
_OFFERED: Final = _READ | {"identity"}
_GZIP: Final = 16 + zlib.MAX_WBITS
# Bytes of a decompressed piece: some milliseconds of work. Answers of models compress to a tenth,
# seldom to a thirtieth; what exceeds this was made to.
_PIECE = 1 << 20
_RATIO = 32
# Members of one piece: a compressor writes one, or one for each of its own pieces.
_MOST_MEMBERS: Final = 64


def offered(accepted: str) -> str:
    """The value of Accept-Encoding for a replica, by that of the client: the codings of it that are
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
    """``coding``: the value of Content-Encoding, "" if there is none."""
    return not coding or coding.strip().lower() == "identity"


class Unpacker:
    """The bytes in one compressed answer, as far as they can be told.

    ``is_lost``: from some byte on nothing is known: of another coding than was offered, broken, or
    so dense that reading it would hold up others.
    """

    __slots__ = ("_gzip", "is_lost")

    def __init__(self, coding: str) -> None:
        self._gzip = zlib.decompressobj(_GZIP)
        self.is_lost = coding.strip().lower() not in _READ

    def feed(self, piece: bytes) -> bytes:
        """What ``piece`` adds."""
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
