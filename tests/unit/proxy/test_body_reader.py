"""The body reader: reading piece by piece, it finds what ``json`` finds, and it truncates large
values."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given
from test_member_scan import texts
from tests.examples import examples

from moorage.proxy.core.affinity import key_of
from moorage.proxy.core.body_reader import BodyReader, TooIntricate
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.request_body import SLICE_BYTES, WHOLE_BYTES, LargeBody, read_json

NAMES = frozenset({"model", "stream", "n", "messages", "max_tokens"})


def read(body: bytes, places: list[float] | None = None, steps: int = 1 << 60) -> BodyReader:
    """``places``: where the body is split, as fractions of its length."""
    reader = BodyReader(NAMES, steps)
    begin = 0
    for end in sorted(round(place * len(body)) for place in places or []):
        reader.feed(body[begin:end])
        begin = end
    reader.feed(body[begin:])
    reader.end()
    return reader


@examples(1000)
@given(
    texts(),
    st.lists(st.floats(0, 1), max_size=6),
    st.sampled_from(["utf-8"] * 4 + ["utf-16", "utf-8-sig"]),
)
def test_what_is_found_is_what_json_reads(text: bytes, places: list[float], encoding: str) -> None:
    body = (
        text
        if encoding == "utf-8"
        else text.decode("utf-8", "surrogatepass").encode(encoding, "ignore")
    )
    try:
        document = json.loads(body)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011
            read(body, places)
        return

    reader = read(body, places)
    assert (reader.begin == "{") == isinstance(document, dict)
    if isinstance(document, dict):
        assert repr(reader.members) == repr({name: document[name] for name in reader.members})
        assert reader.members.keys() == document.keys() & NAMES

    if "model" in reader.members:
        begin, end = reader.model_span
        whole = (
            body.decode("utf-8", "surrogatepass") if encoding == "utf-8" else body.decode(encoding)
        )
        assert repr(json.loads(whole[begin:end])) == repr(reader.members["model"])


@pytest.mark.parametrize(
    ("body", "repeated"),
    [
        (b'{"model":"a","model":"b"}', {"model"}),
        (b'{"model":"a","mod\\u0065l":"b"}', {"model"}),
        (b'{"model":[1,2],"x":{"model":1},"n":1}', set()),
        (b'{"n":1,"model":"a","n":2,"n":3}', {"n"}),
        (b'[{"model":"a","model":"b"}]', set()),
    ],
)
@pytest.mark.parametrize("places", [[], [0.3, 0.6], [n / 40 for n in range(40)]])
def test_names_that_come_twice(body: bytes, repeated: set[str], places: list[float]) -> None:
    assert read(body, places).repeated == repeated


def test_depth_numbers_and_steps_are_bounded() -> None:
    assert read(b"[" * 800 + b"]" * 800).is_complete
    with pytest.raises(RecursionError):
        read(b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}")

    for number in (b"9" * 5000, b"9" * 10_000 + b".5", b"-" + b"9" * 300_000):
        with pytest.raises(ValueError, match="a value is missing"):
            read(b'{"x":' + number + b"}", [0.5])

    deep = b'{"x":[' + b",".join([b"[[[[[[[[]]]]]]]]"] * 1000) + b"]}"
    assert read(deep).is_complete
    with pytest.raises(TooIntricate):
        read(deep, steps=1000)

    assert read(
        b'{"x":"' + b"a" * 5000 + b'"}', [n / 5000 for n in range(5000)], steps=10
    ).is_complete


def large(document: dict[str, object]) -> LargeBody:
    body = LargeBody(json.dumps(document).encode())
    while body.read_on():
        pass
    return body


def test_flat_body_has_large_slices_and_another_small_ones() -> None:
    def slices(body: bytes) -> int:
        large = LargeBody(body)
        count = 1
        while large.read_on():
            count += 1
        return count

    flat = b'{"model":"m","x":[' + b",".join([b'[1,{"a":"b"}]'] * 50_000) + b"]}"
    assert slices(flat) == -(-len(flat) // SLICE_BYTES)
    deep = b'{"model":"m","x":[' + b",".join([b"[[[[[[[[1]]]]]]]]"] * 10_000) + b"]}"
    assert slices(deep) > 4 * len(deep) / SLICE_BYTES


def test_large_values_are_cut_short() -> None:
    text = 'é\\"\n' * 20_000
    many = [{"role": "user", "content": "x" * 100}] * 5000
    document = large(
        {"prompt": text, "messages": many, "model": "m", "x": many, "input": [[text], text]}
    ).document()
    assert isinstance(document, dict)
    assert document.keys() == {"prompt", "messages", "model", "input"}
    assert document["model"] == "m"
    assert text.startswith(document["prompt"])
    assert 1024 < len(document["prompt"]) < 20_000
    assert many[:100] == document["messages"][:100]
    assert len(json.dumps(document)) < 250_000


def test_large_body_that_would_take_long_to_read_is_refused() -> None:
    body = LargeBody(b'{"model":"m","x":[' + b",".join([b"[[[[[[[[1]]]]]]]]"] * 100_000) + b"]}")
    slices = 1
    while body.read_on():
        slices += 1
    error = body.document()
    assert isinstance(error, ErrorResponse)
    assert (error.status, error.code) == (413, "request_too_large")
    assert slices < 90, "the rest is not read"


chats = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "system", "assistant"]),
            "content": st.text(max_size=20)
            | st.lists(
                st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=20)}),
                max_size=3,
            ),
        }
    ),
    max_size=5,
)


@examples(100)
@given(chats, st.sampled_from(["", "x" * 700, '"\\' * 3000, "😀" * 20_000]), st.booleans())
def test_large_chat_goes_where_it_went_when_it_was_small(
    chat: list[object], text: str, is_first: bool
) -> None:
    """Its affinity is derived from its beginning."""
    long: list[object] = [{"role": "user", "content": text}]
    document: dict[str, object] = {
        "model": "m",
        "messages": [*long, *chat] if is_first else [*chat, *long],
    }
    whole = read_json(json.dumps(document).encode())
    in_slices = large({**document, "x": "a" * WHOLE_BYTES}).document()
    assert not isinstance(whole, ErrorResponse)
    assert not isinstance(in_slices, ErrorResponse)
    assert key_of("", whole) == key_of("", in_slices)


@pytest.mark.parametrize(
    ("begin", "found"),
    [
        (b"", "not valid JSON"),
        (b"[", "an array"),
        (b'"', "a string"),
        (b"{", "not valid JSON"),
        (b"1", "number"),
    ],
)
def test_large_body_that_is_no_object(begin: bytes, found: str) -> None:
    end = {b"[": b"]", b'"': b'"'}.get(begin, b"")
    body = LargeBody(begin + b" " * WHOLE_BYTES + end)
    while body.read_on():
        pass
    error = body.document()
    assert isinstance(error, ErrorResponse)
    assert found in error.message
