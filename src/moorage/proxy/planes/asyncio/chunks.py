"""Chunked bodies, strictly decoded by llhttp in both directions."""

from __future__ import annotations

from typing import Final

import httptools

# Bytes of chunk extensions and trailers, in addition to the body and the framing of small chunks.
_FRAMING_BYTES = 256 * 1024
# A one-byte chunk takes six bytes.
_FRAMING_PER_BYTE = 8
_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST: Final = b"0\r\n\r\n"


class BadChunks(Exception):
    """A body has invalid or excessive framing."""


class ChunkDecoder:
    """The decoder for one body. ``is_complete``: the body has ended. ``has_surplus``: more data
    followed its end."""

    def __init__(self) -> None:
        self.is_complete = False
        self.has_surplus = False
        self._body_bytes = 0
        self._framing_bytes = 0
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        # The parser gets an artificial response, whose body consists of the chunks that follow.
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(_HEAD)

    def on_message_complete(self) -> None:
        self.is_complete = True

    def on_message_begin(self) -> None:
        self.has_surplus = self.is_complete

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body in ``data``. Raises ``BadChunks``."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.is_complete:
                raise BadChunks(str(error)) from None
            self.has_surplus = True

        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._body_bytes += len(body)
        self._framing_bytes += len(data) - len(body)
        if self._framing_bytes > _FRAMING_BYTES + _FRAMING_PER_BYTE * self._body_bytes:
            raise BadChunks("its chunk extensions or trailers are too long")

        return body


def encode(piece: bytes) -> bytes:
    """A chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
