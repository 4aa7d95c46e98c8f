"""End of an event stream that a replica broke off: what the client gets instead of the rest.
Pure."""

from __future__ import annotations

from moorage.proxy.core.error_response import INVALID, SERVER, anthropic_json, error_json
from moorage.proxy.core.limits.limiter import Observer
from moorage.proxy.core.retry import Failure

TAIL_BYTES = 160
"""Bytes of the end of a stream that decide: enough for the last event, with its line ends, or an
error of an engine in its place."""
# What the last event of a complete stream contains, in OpenAI's and in Anthropic's format.
_DONE = (b"data: [DONE]", b'"type":"message_stop"', b'"type": "message_stop"')


def closing_event(tail: bytes, failure: Failure, anthropic: bool = False) -> bytes:
    """The bytes that end the stream, without [DONE]; b"" if the client has received everything
    already.

    The stream is complete as HTTP then. The client may reuse the connection, and closing it would
    break its next request.
    """
    tail = tail[-TAIL_BYTES:]
    is_event_end = tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
    if is_event_end and any(done in tail for done in _DONE):
        return b""

    # End a partial event first, or it would swallow ours.
    separator = b"" if is_event_end or not tail else b"\n\n"
    return separator + error_event(_error(failure, anthropic), anthropic)


def error_event(data: bytes, anthropic: bool) -> bytes:
    """The event with an error, which is one line."""
    return (b"event: error\n" if anthropic else b"") + b"data: " + data + b"\n\n"


def as_event(observe: Observer | None) -> Observer:
    """Makes the body of a response that is no event stream an event, where a stream has been begun.
    ``observe``: who sees the body first."""
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
        message = "The API key was revoked, or may not ask the model any more."
        if anthropic:
            return anthropic_json(message, "authentication_error")

        return error_json(message, INVALID, "invalid_api_key")
    else:
        message = "The connection to the replica was lost in the middle of the response."
        code = "upstream_error"

    return anthropic_json(message, "api_error") if anthropic else error_json(message, SERVER, code)
