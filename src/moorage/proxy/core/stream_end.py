"""End of an event stream that a replica has broken off: what the client gets instead of the rest.
Pure."""

from __future__ import annotations

from moorage.proxy.core.error_response import INVALID, SERVER, anthropic_json, error_json
from moorage.proxy.core.limits.limiter import Observer
from moorage.proxy.core.retry import Failure

TAIL_BYTES = 160
"""The number of bytes at the end of a stream that are examined: enough for the last event with its
newlines, or for an engine's error in its place."""
# Marks of the last event in a complete stream, in OpenAI's and Anthropic's formats.
_DONE = (b"data: [DONE]", b'"type":"message_stop"', b'"type": "message_stop"')


def closing_event(tail: bytes, failure: Failure, anthropic: bool = False) -> bytes:
    """The bytes that end the stream, without [DONE]; b"" if the client has already received
    everything.

    After them, the HTTP response is complete. The client may reuse the connection, so closing it
    would break its next request.
    """
    tail = tail[-TAIL_BYTES:]
    is_event_end = tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
    if is_event_end and any(done in tail for done in _DONE):
        return b""

    # First end a partial event, which would otherwise absorb ours.
    separator = b"" if is_event_end or not tail else b"\n\n"
    return separator + error_event(_error(failure, anthropic), anthropic)


def error_event(data: bytes, anthropic: bool) -> bytes:
    """The event with an error, on one line."""
    return (b"event: error\n" if anthropic else b"") + b"data: " + data + b"\n\n"


def as_event(observe: Observer | None) -> Observer:
    """An observer that turns a response's body into an event, for a stream that has already
    started. ``observe``: the observer that sees the body first."""
    prefix = b"data: "

    def wrap(piece: bytes) -> bytes:
        nonlocal prefix
        seen = piece if observe is None else observe(piece)
        begin = prefix
        prefix = b""
        return begin + seen.replace(b"\r", b" ").replace(b"\n", b" ") + (b"" if piece else b"\n\n")

    return wrap


def _error(failure: Failure, anthropic: bool) -> bytes:
    if failure is Failure.IDLE_TIMEOUT:
        message = "The replica stopped sending data in the middle of the response."
        code = "upstream_timeout"
    elif failure is Failure.KEY_REVOKED:
        message = "The API key was revoked, or may no longer use the model."
        if anthropic:
            return anthropic_json(message, "authentication_error")

        return error_json(message, INVALID, "invalid_api_key")
    else:
        message = "The connection to the replica was lost in the middle of the response."
        code = "upstream_error"

    return anthropic_json(message, "api_error") if anthropic else error_json(message, SERVER, code)
