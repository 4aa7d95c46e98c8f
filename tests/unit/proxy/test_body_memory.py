"""Large bodies: how much of them a proxy keeps, for how long, and what is text in them."""

from __future__ import annotations

import json
from codecs import BOM_UTF8

import pytest
from flow_playbook import Counting, Playbook, describe
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.proxy.core.body_model import with_model
from moorage.proxy.core.forms import field_span
from moorage.proxy.core.request_body import LargeBody, LargeForm, LargeReader, read_form

KIND = "multipart/form-data; boundary=b"
NAMED = b'Content-Disposition: form-data; name="model"'
FILE = b'Content-Disposition: form-data; name="file"; filename="a.wav"'


def form(*parts: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"--b\r\n%b\r\n\r\n%b\r\n" % part for part in parts) + b"--b--\r\n"


def read(large: LargeReader) -> LargeReader:
    while large.read_on():
        pass
    return large


@pytest.mark.parametrize(
    "ends",
    [
        ("leaves",),
        ("body", "leaves"),
        ("body", "refused"),
        ("body", "response 200"),
        ("body", "response 200", "end"),
        ('body {"model":"other"}',),
    ],
)
def test_a_body_is_kept_until_the_response_starts(ends: tuple[str, ...]) -> None:
    playbook = Playbook("a", max_total_body_bytes=100)
    playbook.event("request")
    assert playbook.flow.keep(60) is None
    assert playbook.flow.keep(90) is None, "the rest of the same body"

    other = playbook.another()
    other.event("request")
    error = other.flow.keep(20)
    assert error is not None
    assert (error.status, error.code, error.close) == (503, "server_is_overloaded", True)
    assert "proxy.max_total_body_bytes" in error.message
    assert int(error.headers["Retry-After"]) > 0
    assert describe(other.flow.refuse(error, playbook.now)) == "503 server_is_overloaded"

    for event in ends:
        playbook.event(event)

    assert playbook.router.bodies.used == 0
    third = playbook.another()
    third.event("request")
    assert third.flow.keep(100) is None


def test_a_body_is_kept_while_another_replica_may_get_it() -> None:
    playbook = Playbook("a b", max_total_body_bytes=100)
    playbook.event("request")
    assert playbook.flow.keep(90) is None
    playbook.event("body")
    assert playbook.event("refused") == "send b"
    assert playbook.router.bodies.used == 90


SPLIT = st.lists(st.sampled_from([b"\r\n", b"--b", b"--", b"a", b"\r\n\r\n"]), max_size=30)


@examples(100)
@given(SPLIT.map(b"".join), st.binary(max_size=40))
def test_a_form_reads_the_same_in_slices(content: bytes, tail: bytes) -> None:
    for body in (form((FILE, content), (NAMED, b"tiny")), form((NAMED, content)), content + tail):
        assert read(LargeForm(body, KIND)).document() == read_form(body, KIND)


def test_a_part_may_end_with_its_head() -> None:
    body = b"--b\r\n%b\r\n\r\n--b--\r\n" % NAMED
    assert read_form(body, KIND) == {"model": "", "stream": False}
    begin, end = field_span(body, KIND, "model")
    assert begin == end, "compiled code does not accept a negative size"


def test_a_large_form_is_read_in_slices() -> None:
    body = form((NAMED, b"tiny"), (FILE, bytes(9 << 20)), (FILE, b"\r\n--" * (1 << 20)))
    large = LargeForm(body, KIND)
    assert sum(1 for _ in iter(large.read_on, False)) > 5
    assert large.document() == {"model": "tiny", "stream": False}
    assert large.prompt_bytes == 4, "a recording is not text"
    begin, end = large.model_span
    assert body[begin:end] == b"tiny"
    changed = with_model(body, KIND, "other", large.model_span)
    assert changed == with_model(body, KIND, "other") != body


@pytest.mark.parametrize("text", ["a b ", "é", "\N{GRINNING FACE}x"])
def test_the_model_is_replaced_behind_a_long_text(text: str) -> None:
    for before in (0, 1, 2, 3):
        words = "a" * before + text * 70_000
        body = json.dumps(
            {"prompt": words, "model": "tiny", "suffix": words}, ensure_ascii=False
        ).encode()
        large = LargeBody(body)
        read(large)
        changed = with_model(body, "", "other", large.model_span)
        assert changed == body.replace(b'"tiny"', b'"other"')
        marked = BOM_UTF8 + body
        assert with_model(marked, "", "other", read(LargeBody(marked)).model_span) == changed


def test_media_is_no_text() -> None:
    url = "data:image/png;base64," + "iVBORw0KGgo" * 100_000
    content = [{"type": "text", "text": "what is this? " * 1000}, {"image_url": {"url": url}}]
    body = json.dumps({"model": "tiny", "messages": [{"content": content}]}).encode()
    large = read(LargeBody(body))
    assert 14_000 < large.prompt_bytes < 14_000 + 2 * 16_384
    words = json.dumps({"model": "tiny", "prompt": "some words " * 100_000}).encode()
    assert read(LargeBody(words)).prompt_bytes == len(words)


def test_media_reserves_no_tokens() -> None:
    limiter = Counting()
    playbook = Playbook("a", limiter)
    playbook.event("request")
    body = json.dumps({"model": "tiny", "image": "A" * 1_000_000}).encode()
    large = playbook.flow.large(body)
    assert large is not None
    read(large)
    assert describe(playbook.flow.body(body, playbook.now, large)) == "send a"
    assert limiter.asks[0].prompt_bytes < 40_000
