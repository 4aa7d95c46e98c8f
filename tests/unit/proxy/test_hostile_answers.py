"""Hostile engines' answers as read by the proxy's meters: no bytes cause a fault or hold up the
loop."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.proxy.core.retry import Failure
from moorage.proxy.core.stream_end import as_event, closing_event
from moorage.proxy.core.token_meter import PackedMeter, SessionMeter, TokenMeter, Tokens

MOST = 1 << 40
CHUNK = 64 * 1024
MOST_S = 0.02
METERS: dict[str, Callable[[], TokenMeter | PackedMeter | SessionMeter]] = {
    "body": lambda: TokenMeter(is_stream=False),
    "stream": lambda: TokenMeter(is_stream=True),
    "websocket": SessionMeter,
    "gzip": lambda: PackedMeter("gzip", is_stream=True),
}
PIECES = st.sampled_from(
    [
        *(
            b"data: ",
            b"\n\n",
            b"\r\n",
            b"data: [DONE]\n\n",
            b'"usage": ',
            b'"usage"',
            b": {",
            b"{",
            b"}",
            b"[",
            b"]",
        ),
        *(
            b'"prompt_tokens": ',
            b'"completion_tokens":',
            b'"input_tokens": ',
            b'"cached_tokens": ',
            b"1e999",
        ),
        *(
            b"NaN",
            b"-1",
            b"9" * 5000,
            b"7",
            b",",
            b"null",
            b"true",
            b'"',
            b"\\u00",
            b"\xff\xfe",
            b"\0",
        ),
        *(b"{" * 9000, b'{"a":' * 2000, b"event: error\n", b'"type":"message_stop"'),
        *(
            gzip.compress(b'data: {"usage": {"prompt_tokens": 7, "completion_tokens": 5}}\n\n')[
                :30
            ],
            b"\x1f\x8b\x08",
        ),
    ]
)


@pytest.mark.parametrize("kind", METERS)
def test_any_bytes_are_counted_within_bounds(kind: str) -> None:
    @examples(60)
    @given(st.lists(PIECES, max_size=12), st.integers(1, 4000), st.integers(0, MOST))
    def run(pieces: list[bytes], size: int, prompt: int) -> None:
        meter = METERS[kind]()
        sent = b"".join(pieces)
        for at in range(0, len(sent), size):
            assert meter.feed(sent[at : at + size]) == sent[at : at + size]
        found = meter.estimate(prompt)
        assert all(
            0 <= count <= MOST + len(sent) for count in (found.prompt, found.answer, found.cached)
        )

    run()


@pytest.mark.parametrize("kind", METERS)
@pytest.mark.parametrize(
    "unit",
    [
        *(
            b'"usage":{',
            b'"usage":{"a":[',
            b'"usage":{"a":"',
            b'"usage":',
            b'"usage":{}',
            b"data:",
            b"{",
        ),
        *(b'"usage":{"prompt_tokens":' + b"9" * 4000, b'"usage"' + b" " * 500 + b":"),
    ],
    ids=repr,
)
def test_no_chunk_holds_up_the_loop(kind: str, unit: bytes) -> None:
    data = (unit * (CHUNK // len(unit) + 1))[:CHUNK]
    taken = []
    for _ in range(3):
        meter = METERS[kind]()
        begun = time.thread_time()
        meter.feed(data)
        meter.estimate(1)
        taken.append(time.thread_time() - begun)
    assert min(taken) < MOST_S


def test_statements_of_many_messages_in_one_chunk_add_up() -> None:
    meter = SessionMeter()
    message = b'\x81\x40{"type": "response.done", "usage": {"input_tokens": 7, "output_tokens": 5}}'
    meter.feed(message * 20)
    assert meter.estimate(0) == Tokens(140, 100)


@examples(60)
@given(st.binary(max_size=400), st.sampled_from(list(Failure)), st.booleans())
def test_any_broken_stream_is_ended_by_one_event_of_one_line(
    tail: bytes, failure: Failure, anthropic: bool
) -> None:
    closing = closing_event(tail, failure, anthropic)
    assert not closing or closing.endswith(b"\n\n")
    assert closing.count(b"data: ") <= 1
    wrap = as_event(None)
    event = wrap(tail) + wrap(b"")
    assert event.startswith(b"data: ")
    assert event.rstrip(b"\n").count(b"\n") == 0
