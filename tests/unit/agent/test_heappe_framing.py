"""Framing of the relay's answers: the body is the same however it is split, and a truncated body is
never taken for a complete one."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.runtimes.heappe.framing import (
    AnswerDecoder,
    Head,
    NotFramed,
    PlainBody,
    failure_in,
    is_relay,
)

_BODY = b'data: {"x": "\xc3\xa4"}\n\ndata: Error: said the model\n\ndata: [DONE]\n\n'


def encoded(*pieces: bytes, status: int = 200) -> bytes:
    head = {"status": status, "headers": [["content-type", "text/event-stream"]]}
    frames = b"".join(b"%x\n%s" % (len(piece), piece) for piece in pieces)
    return b"MG1 " + json.dumps(head).encode() + b"\n" + frames + b"0\n"


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(at)]


@examples(100)
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_any_split_gives_the_same_body(pieces: list[bytes], cuts: list[int]) -> None:
    answer = AnswerDecoder()
    body = b"".join(answer.feed(piece) for piece in split(encoded(*pieces), cuts))
    assert body == b"".join(pieces)
    assert answer.complete
    assert answer.head == Head(200, (("content-type", "text/event-stream"),))


@examples(100)
@given(st.integers(0, 300))
def test_a_body_that_was_cut_off_is_not_complete(at: int) -> None:
    whole = encoded(_BODY, _BODY)
    answer = AnswerDecoder()
    answer.feed(whole[: at % len(whole)])
    assert not answer.complete


@pytest.mark.parametrize(
    "text",
    [
        b"data: Error: ResponseNotOk\n\n",
        b"data: Err",
        b"Validation failed: x",
        b"<html>",
        b"MG1 []\n",
    ],
)
def test_what_is_no_answer_of_the_relay(text: bytes) -> None:
    with pytest.raises(NotFramed):
        AnswerDecoder().feed(text)


def test_an_error_after_some_output_cuts_it_off() -> None:
    answer = AnswerDecoder()
    assert answer.feed(encoded(b"abc")[:-2]) == b"abc"
    with pytest.raises(NotFramed, match="data: Error: Expired"):
        answer.feed(b"data: Error: Expired\n\n")


def test_an_engine_that_did_not_answer() -> None:
    answer = AnswerDecoder()
    answer.feed(b'MG1 {"status": 0, "error": "refused"}\n')
    assert answer.head == Head(0, (), "refused")


_ERROR = b"data: Error: NoActiveConnectionForUser\n\n"


@examples(100)
@given(
    st.sampled_from([b"", b"data: 1\n\n", b"data: 1\n\ndata: 2"]),
    st.lists(st.integers(0, 80), max_size=8),
)
def test_errors_are_found_in_a_plain_body(before: bytes, cuts: list[int]) -> None:
    body = PlainBody()
    whole = (before + b"\n" if before.endswith(b"2") else before) + _ERROR
    passed = b"".join(body.feed(piece) for piece in split(whole, cuts)) + body.end()
    assert passed == whole.removesuffix(_ERROR)
    assert body.failure == "NoActiveConnectionForUser"


@examples(100)
@given(st.sampled_from([b'{"a": 1}', b"data: 1\n\ndata: [DONE]\n\n", b"data: Er", b"x data: Error: y\n"]),
       st.lists(st.integers(0, 80), max_size=8))  # fmt: skip
def test_a_plain_body_passes_unchanged(whole: bytes, cuts: list[int]) -> None:
    body = PlainBody()
    assert b"".join(body.feed(piece) for piece in split(whole, cuts)) + body.end() == whole
    assert body.failure is None
    assert whole.endswith(body.tail[-20:])


def test_the_health_page() -> None:
    assert is_relay('{"moorage": 1}')
    assert not is_relay("OK")
    assert not is_relay("[1]")
    assert failure_in("data: Error: Expired\n\n") == "Expired"
    assert failure_in('{"data": 1}') is None
