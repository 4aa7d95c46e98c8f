"""Compressed request bodies: expanded a slice at a time, within limits. Pure.

The proxy needs ``model``, and engines read no compressed bodies, so replicas get the expanded body.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Final

from moorage.proxy.core import error_response
from moorage.proxy.core.body_limit import BodyLimit
from moorage.proxy.core.error_response import ErrorResponse

GZIP: Final = "gzip"
DEFLATE: Final = "deflate"
_CODINGS: Final = {"": "", "identity": "", GZIP: GZIP, "x-gzip": GZIP, DEFLATE: DEFLATE}

# The most that is read or written in one slice, within a few milliseconds for any content. Tables
# of codes without data between them take the longest, for each byte that is read.
_READ_BYTES: Final = 16_384
_WRITE_BYTES: Final = 262_144
_MEMBERS_IN_SLICE: Final = 64
# Some compressors write a gzip member for every 64 KiB.
_MOST_MEMBERS: Final = 4096
# A body that expands further is a bomb. JSON rarely expands to more than twenty times its size.
MOST_RATIO: Final = 100
_ANY_RATIO_BYTES: Final = 1 << 20


def request_coding(headers: Mapping[str, str]) -> str | ErrorResponse:
    """The coding of a request's body, empty if it is not compressed."""
    given = headers.get("Content-Encoding", "").strip().lower()
    coding = _CODINGS.get(given)
    return error_response.unsupported_encoding(given) if coding is None else coding


class BodyExpander:
    """One compressed body. Call ``read_on`` until it returns False; then ``error`` or ``body`` is
    the result.

    ``keep``: called with the number of bytes in memory, compressed and expanded ones; returns an
    error if there is no room for them."""

    def __init__(
        self,
        body: bytes,
        coding: str,
        limit: BodyLimit,
        keep: Callable[[int], ErrorResponse | None],
    ) -> None:
        self._source = body
        self._coding = coding
        self._limit = limit
        self._keep = keep
        self._most = max(_ANY_RATIO_BYTES, MOST_RATIO * len(body))
        self._reader = zlib.decompressobj(_window(body, coding))
        self._members = 1
        self._at = 0
        self._unread = b""
        self._expanded = BytesIO()
        self._size = 0
        self.error: ErrorResponse | None = None

    @property
    def body(self) -> bytes:
        return self._expanded.getvalue()

    def read_on(self) -> bool:
        """Expand one slice. Returns whether there are more."""
        room = _WRITE_BYTES
        for _ in range(_MEMBERS_IN_SLICE):
            size_before = self._size
            try:
                has_more = self._expand(room)
            except zlib.error as error:
                self.error = error_response.malformed_coding(self._coding, str(error))
                return False

            if self.error is not None or not has_more:
                return False

            room -= self._size - size_before
            if room <= 0 or not self._reader.eof:
                break

        return True

    def _expand(self, room: int) -> bool:
        """Expand a part of one member, of at most ``room`` bytes. Returns whether there is more."""
        piece = self._unread
        if not piece:
            piece = self._source[self._at : self._at + _READ_BYTES]
            self._at += len(piece)

        if self._reader.eof and (not piece or not self._begin_member()):
            return False

        found = self._reader.decompress(piece, room)
        has_ended = self._reader.eof
        self._unread = self._reader.unused_data if has_ended else self._reader.unconsumed_tail
        self._expanded.write(found)
        self._size += len(found)
        if not piece and not found and not has_ended:
            self.error = error_response.malformed_coding(self._coding, "it is truncated")
        else:
            self.error = self._check_size()

        return True

    def _check_size(self) -> ErrorResponse | None:
        if self._size > self._limit.size:
            return error_response.body_too_large(self._limit, is_expanded=True, close=False)
        if self._size > self._most:
            return error_response.body_too_dense(MOST_RATIO)
        return self._keep(len(self._source) + self._size)

    def _begin_member(self) -> bool:
        """Begin the next member. Returns False if there may be none."""
        if self._coding != GZIP:
            self.error = error_response.malformed_coding(self._coding, "something follows its end")
            return False
        if self._members == _MOST_MEMBERS:
            self.error = error_response.too_many_members(_MOST_MEMBERS)
            return False

        self._members += 1
        self._reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        return True


def _window(body: bytes, coding: str) -> int:
    """The format of the data, as zlib names it. Some clients send ``deflate`` without the header
    that RFC 9110 requires."""
    if coding == GZIP:
        return 16 + zlib.MAX_WBITS

    has_header = len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
