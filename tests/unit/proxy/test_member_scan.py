"""The member scan: it reads everything that it accepts as ``json`` does. Compiled code relies on
this."""

from __future__ import annotations

import json
from bisect import bisect_left

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.examples import examples

from moorage.proxy.core.histogram import place
from moorage.proxy.core.member_scan import read_member, read_members
from moorage.proxy.core.request_body import MEMBERS, read_json, some_members
from moorage.proxy.core.token_meter import COUNTS

CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "a \\"b\\" \\u00e9\\n"}], "max_tokens": 5}'


@pytest.mark.parametrize(
    ("body", "members"),
    [
        (CHAT, {"model": "m", "max_tokens": 5}),
        (b'{"model":"m"}', {"model": "m"}),
        (b'{ "model" :\t"m" ,\r\n"stream" : true }', {"model": "m", "stream": True}),
        ('{"model":"grüße","n":1}'.encode(), {"model": "grüße", "n": 1}),
        (b'{"model":"a\\u002fb","stream":false}', {"model": "a/b", "stream": False}),
        (b'{"x":[],"y":{},"z":[[{"model":"no"},1],{"a":[]}],"model":"m"}', {"model": "m"}),
        (b'{"t":0.7,"u":-1e-5,"v":0,"w":-0.0E+2,"n":null}', {"n": None}),
        (b'{"n":-1,"max_tokens":1.5}', {"n": -1, "max_tokens": 1.5}),
        (b'{"n":%b}' % (b"9" * 40), {"n": int("9" * 40)}),
        (b'{"model":{"model":"m"}}', {"model": {"model": "m"}}),
        (b'{"x":%b1%b}' % (b"[" * 60, b"]" * 60), {}),
    ],
)
def test_what_everybody_sends_is_read(body: bytes, members: dict[str, object]) -> None:
    assert some_members(body) == members


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{}", b"[]", b'"model"', b"1", b" {}", b'{"model":"m"} ', b'{"model":"m"}}',
        b'{"model":"m",}', b'{"model":"m" "n":1}', b'{"model" "m"}', b'{"model":}', b'{model:"m"}',
        b"{'model':'m'}", b'{"model":"m', b'{"model":"m","model":"n"}', b'{"mod\\u0065l":"m"}',
        b'{"x":NaN}', b'{"x":-Infinity}', b'{"x":01}', b'{"x":1.}', b'{"x":.5}', b'{"x":-}', b'{"x":1e}',
        b'{"x":+1}', b'{"x":tru}', b'{"x":True}', b'{"x":"\n"}', b'{"x":"\\x"}', b'{"x":"\\u12g4"}',
        b'{"x":"\\u12"}', b'{"x":"\\', b'{"x":[1,]}', b'{"x":[,1]}', b'{"x":[1}}', b'{"x":{"a":1]}',
        b'{"x":{1:2}}', b'{"x":{"a"}}', b'{"x":{"a":1,}}', b'{"x":"\xff"}', b'{"model":"\xc3"}',
        b'\xef\xbb\xbf{"model":"m"}', '{"model":"m"}'.encode("utf-16-le"), b'{"x":%b}' % (b"1" * 5000),
        b'{"x":%b%b}' % (b"[" * 61, b"]" * 61), b'{"x":%b' % (b"[" * 100_000),
    ],
)  # fmt: skip
def test_what_is_wrong_or_unusual_is_left_to_json(body: bytes) -> None:
    assert some_members(body) is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats()
    | st.text(st.sampled_from('a"\\/\n\t\x7fé\u2028😀\ud800{}[],:')),
    lambda of: (
        st.lists(of, max_size=3) | st.dictionaries(st.sampled_from(["a", "model", 'q"']), of)
    ),
    max_leaves=8,
)
NAMES = [*MEMBERS.values(), "messages", "usage", "é", 'a"b']
documents = st.dictionaries(
    st.sampled_from(NAMES), values | st.sampled_from(["m", 5, True]), max_size=6
)
HOSTILE = [
    *'{}[]",:\\ \t\r\n0123456789.-+eEunltrfasx/',
    '"model":"n",',
    "NaN",
    "\x00",
    "\x1f",
    "é",
    "\\u006d",
]
edits = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 2), st.sampled_from(HOSTILE)), max_size=3
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """JSON, usually with an error in it."""
    document = draw(documents)
    ascii_only = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
    text = json.dumps(document, ensure_ascii=ascii_only, separators=separators)
    for where, dropped, added in draw(edits):
        at = round(where * len(text))
        text = text[:at] + added + text[at + dropped :]
    return text.encode("utf-8", "surrogatepass")


@examples(1000)
@given(texts())
def test_what_is_taken_is_what_json_reads(body: bytes) -> None:
    members = some_members(body)
    if members is not None:
        document = read_json(body, names_another=True)
        assert isinstance(document, dict), "json refuses it"
        read = {name: document[name] for name in MEMBERS.values() if name in document}
        assert repr(members) == repr({name: read[name] for name in members})
        assert len(members) == len(read)


@examples(300)
@given(texts(), st.binary(max_size=4))
def test_the_end_of_an_object_is_where_json_sees_it(body: bytes, behind: bytes) -> None:
    found = read_member(b'"usage" : ' + body + behind, 7, COUNTS)
    assert found == _shifted(read_members(body + behind, 0, COUNTS), 10)
    if found is not None:
        text = (body + behind).decode("latin-1")
        _, end = json.JSONDecoder().raw_decode(text)
        assert found[1] == end + 10


def _shifted(
    found: tuple[dict[str, object], int] | None, by: int
) -> tuple[dict[str, object], int] | None:
    return None if found is None else (found[0], found[1] + by)


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(-1, 11))
def test_place_in_a_histogram(bounds: list[float], value: float) -> None:
    ordered = tuple(sorted(bounds))
    for one in (value, *ordered):
        assert place(ordered, one) == bisect_left(ordered, one)
