"""Token meter and priority: the values read from an answer, and the one written into a request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import KeyGrant
from moorage.proxy.core.priority import priority_of, with_priority
from moorage.proxy.core.token_meter import SessionMeter, TokenMeter, Tokens

CHAT = {"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5}


def read(*chunks: bytes, is_stream: bool = False) -> Tokens | None:
    meter = TokenMeter(is_stream=is_stream)
    for chunk in chunks:
        meter.feed(chunk)
    return meter.read()


def test_answers_of_llamacpps_own_apis() -> None:
    timings = {"cache_n": 4, "prompt_n": 3, "predicted_n": 5, "predicted_ms": 1.5}
    answer = {"content": "x", "tokens_predicted": 5, "timings": timings}
    assert read(json.dumps(answer).encode()) == Tokens(7, 5, 4)
    assert read(*sse({"content": "x"}, answer), is_stream=True) == Tokens(7, 5, 4)
    assert read(json.dumps(answer | {"usage": CHAT}).encode()) == Tokens(7, 5)


def test_a_generated_answer_that_reports_nothing_counts_by_its_size() -> None:
    for generates, expected in ((True, 25), (False, 0)):
        meter = TokenMeter(is_stream=False, generates=generates)
        meter.feed(b"x" * 60)
        meter.feed(b"x" * 40)
        assert meter.estimate(3) == Tokens(3, expected)


def sse(*events: dict[str, Any]) -> list[bytes]:
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [
        b"data: [DONE]\n\n"
    ]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (CHAT, Tokens(7, 5)),
        (CHAT | {"prompt_tokens_details": {"cached_tokens": 4}}, Tokens(7, 5, 4)),
        ({"prompt_tokens": 3, "total_tokens": 3}, Tokens(3)),
        (
            {"input_tokens": 7, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 2}},
            Tokens(7, 5, 2),
        ),
        ({"input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 3}, Tokens(7, 5, 3)),
        ({"prompt_tokens": -1, "completion_tokens": "9"}, None),
        ({"prompt_tokens": 1 << 80}, Tokens(1 << 40)),
        ({"tokens": {"input_tokens": 7, "output_tokens": 5}, "billed_units": {}}, Tokens(7, 5)),
        (None, None),
        ({}, None),
    ],
)
def test_usage_of_an_answer(usage: dict[str, Any] | None, tokens: Tokens | None):
    body = json.dumps(
        {"choices": [{"message": {"content": "x" * 9000}}], "usage": usage, "after": None}
    )
    assert read(body.encode()) == tokens


def test_usage_of_a_stream():
    chunks = sse(
        {"choices": [{"delta": {"content": "a"}}], "usage": None}, {"choices": [], "usage": CHAT}
    )
    assert read(*chunks, is_stream=True) == Tokens(7, 5)
    assert read(b"".join(chunks), is_stream=True) == Tokens(7, 5)
    assert read(*(bytes([byte]) for byte in chunks[-2][-8:]), is_stream=True) is None


def test_stream_of_anthropic():
    start = {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 11, "output_tokens": 1}},
    }
    deltas = [{"type": "content_block_delta", "delta": {"text": "x" * 500}} for _ in range(50)]
    end = {"type": "message_delta", "usage": {"output_tokens": 50}}
    assert read(*sse(start, *deltas, end), is_stream=True) == Tokens(11, 50)


def test_stream_without_usage_is_counted():
    meter = TokenMeter(is_stream=True)
    for chunk in sse(*({"choices": [{"delta": {"content": "a"}}]} for _ in range(9))):
        meter.feed(chunk)
    assert meter.estimate(20) == Tokens(20, 9)


@examples(60)
@given(st.text(), st.lists(st.integers(1, 40), max_size=20))
def test_text_of_a_model_is_no_usage(text: str, sizes: list[int]):
    """This holds no matter what the model writes and how the answer is split."""
    forged = (
        '"usage":{"prompt_tokens":1,"completion_tokens":1}'
        + text
        + '{"usage": {"prompt_tokens": 2}}'
    )
    body = json.dumps({"usage": CHAT, "choices": [{"message": {"content": forged}}]}).encode()
    chunks = []
    rest = body
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]

    assert read(*chunks[-7:], rest) in (Tokens(7, 5), None)
    assert read(body) == Tokens(7, 5)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@examples(60)
@given(
    st.dictionaries(st.text() | st.just("priority"), JSON, min_size=1, max_size=4),
    st.integers(0, 100),
)
def test_priority_is_spliced(document: dict[str, Any], priority: int):
    for indent in (None, 1):
        body = json.dumps(document, indent=indent).encode() + b" \n"
        spliced = with_priority(body, priority)
        assert json.loads(spliced) == document | {"priority": 10 - priority}
        end = body.rindex(b"}")
        tail = body[end:]
        assert (spliced[:end], spliced[-len(tail) :]) == (body[:end], tail), (
            "the other bytes are unchanged"
        )


def test_priority_of_a_key():
    assert priority_of(None) == priority_of(KeyGrant("x")) == 10
    assert priority_of(KeyGrant("x", priority=0)) == 0


def test_messages_of_a_session_are_counted_as_far_as_anybody_states_them():
    meter = SessionMeter()
    for _ in range(3):
        meter.feed(b'{"type":"response.done","usage":{"input_tokens":7,"output_tokens":5}}' * 100)
    assert meter.estimate(0) == Tokens(2100, 1500)
    meter.feed(b'"usage":{"usage":{' * 1000 + b'"usage":{"input_tokens":1}')
    assert meter.estimate(0) == Tokens(2100, 1500), "what is made to take time is not read"
    meter = SessionMeter()
    meter.feed(b'"usage":null,' * 200 + b'"usage":{"input_tokens":1}')
    assert meter.estimate(0) == Tokens(1)
