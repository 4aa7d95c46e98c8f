"""WebSocket frames (RFC 6455), as far as a relay needs them to close a WebSocket properly. Pure."""

from __future__ import annotations

from enum import Enum

_CLOSE = 8
_MASKED = 0x80
# Bytes of an extended length, by the length in a head's second byte.
_EXTENDED = {126: 2, 127: 8}


class Farewell(Enum):
    """The proxy's reason for closing a WebSocket: the status code and its text."""

    REPLICA_LOST = 1011, "the connection to the replica was lost"
    DRAIN = 1001, "the proxy is going away"
    KEY_REVOKED = 1008, "the API key was revoked"

    def frame(self) -> bytes:
        """A frame from a server, which is unmasked."""
        code, text = self.value
        reason = text.encode()
        return bytes([0x80 | _CLOSE, 2 + len(reason)]) + code.to_bytes(2) + reason


class FrameTracker:
    """Tracks the ends of frames in one direction, for which it must see all sent data.
    ``may_close``: true between two frames, even of one message, but not after a close frame."""

    __slots__ = ("_has_closed", "_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._has_closed = False

    @property
    def may_close(self) -> bool:
        return not (self._head or self._left or self._has_closed)

    def feed(self, data: bytes) -> None:
        at = 0
        size = len(data)
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
            else:
                step = 1
                self._head += data[at : at + 1]
                self._read_head()

            at += step

    def _read_head(self) -> None:
        head = self._head
        if len(head) < 2:
            return

        length = head[1] & 0x7F
        extended = _EXTENDED.get(head[1] & 0x7F, 0)
        if len(head) < 2 + extended:
            return
        if extended:
            length = int.from_bytes(head[2:])

        self._left = length + (4 if head[1] & _MASKED else 0)
        self._has_closed = self._has_closed or head[0] & 0x0F == _CLOSE
        self._head = b""
