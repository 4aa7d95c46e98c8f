"""End of an event stream that a replica broke off: what the client gets instead of the rest. Pure."""

from __future__ import annotations

from moorage.proxy.core.error_response import SERVER, error_json
from moorage.proxy.core.limiter import Observer
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
    return separator + event(_error(failure))


def event(data: bytes) -> bytes:
    """An event with ``data``, which is one line."""
    return b"data: " + data + b"\n\n"


def as_event(observe: Observer | None) -> Observer:
    """Makes the body of a response that is no event stream an event, where a stream has been begun.
    ``observe``: who sees the body first."""
    prefix = b"data: "

    def wrap(piece: bytes) -> bytes:
        nonlocal prefix
        seen = piece if observe is None else observe(piece)
        begin, prefix = prefix, b""
        return begin + seen.replace(b"\r", b" ").replace(b"\n", b" ") + (b"" if piece else b"\n\n")

    return wrap


def _error(failure: Failure) -> bytes:
    if failure is Failure.IDLE_TIMEOUT:
        message = "The replica stopped sending data in the middle of the response."
        return error_json(message, SERVER, "upstream_timeout")
    message = "The connection to the replica was lost in the middle of the response."
    return error_json(message, SERVER, "upstream_error")
