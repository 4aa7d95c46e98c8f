"""End of an event stream that a replica broke off: what the client gets instead of the rest. Pure."""

from __future__ import annotations

from moorage.proxy.core.error_response import SERVER, error_json
from moorage.proxy.core.retry import Failure

TAIL_BYTES = 32
"""Bytes of the end of a stream that decide: enough for the last event, with its line ends."""
_DONE = b"data: [DONE]"


def closing_event(tail: bytes, failure: Failure) -> bytes:
    """The bytes that end the stream, without [DONE]; b"" if the client has received everything already.

    The stream is complete as HTTP then. The client may reuse the connection, and closing it would break its
    next request.
    """
    tail = tail[-TAIL_BYTES:]
    is_event_end = tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
    if _DONE in tail and is_event_end:
        return b""
    # End a partial event first, or it would swallow ours.
    separator = b"" if is_event_end or not tail else b"\n\n"
    return separator + b"data: " + _error(failure) + b"\n\n"


def _error(failure: Failure) -> bytes:
    if failure is Failure.IDLE_TIMEOUT:
        message = "The replica stopped sending data in the middle of the response."
        return error_json(message, SERVER, "upstream_timeout")
    message = "The connection to the replica was lost in the middle of the response."
    return error_json(message, SERVER, "upstream_error")
