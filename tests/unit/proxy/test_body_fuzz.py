"""The model in a request's body: found or refused exactly as with a plain ``json.loads``."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import ModelRoute, RouteTable
from moorage.proxy.core import admission
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.request_body import LargeBody
from moorage.proxy.core.routes import IndexedTable, newest_table

NAMES = ("tiny", "other/model", "Ж", 'a"b\\c', "\ud83d\ude00")


def known() -> IndexedTable:
    table = newest_table(None, RouteTable(1, tuple(ModelRoute(name, 1, ()) for name in NAMES), ()))
    assert isinstance(table, IndexedTable)
    return table


TABLE = known()
ENCODINGS = [*["utf-8"] * 8, "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"]
PIECES = [b"", b'"', b"{", b"}", b"\\", b"\x00", b"\xff", b',"model":"tiny"', b"\xed\xa0\x80"]
# Values that look like the searched name, in places where it is irrelevant.
decoys = st.sampled_from(
    ['"model"', "model", '{"model": "tiny"}', '"model":"tiny"', "\\", '"', "stream", "\\u006d"]
)
text = decoys | st.text(max_size=8) | st.sampled_from(NAMES)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text
keys = (
    st.sampled_from(["model", "Model", "stream", "priority", "max_tokens", "n", "\\u006dodel"])
    | text
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
pairs = st.lists(st.tuples(keys, values), max_size=6)
models = st.sampled_from(NAMES) | st.sampled_from(["unknown", ""]) | values


def escaped(name: str) -> str:
    """The name as a JSON string with every character escaped."""
    return '"' + "".join(f"\\u{ord(letter):04x}" for letter in name if ord(letter) < 0x10000) + '"'


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """An object, usually with one ``model``, in one of many notations."""
    found: list[tuple[str, object]] = list(draw(pairs))
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2]))):
        found.insert(draw(st.integers(0, len(found))), ("model", draw(models)))

    notations: list[Callable[[str], str]] = [
        json.dumps,
        lambda s: json.dumps(s, ensure_ascii=False),
        escaped,
    ]
    space = draw(st.sampled_from(["", " ", "\n\t ", "\r\n"]))
    is_ascii = draw(st.booleans())
    members = [
        f"{draw(st.sampled_from(notations))(key)}{space}:{space}{json.dumps(value, ensure_ascii=is_ascii)}"
        for key, value in found
    ]
    whole = space + "{" + f"{space},{space}".join(members) + "}" + space
    encoding = draw(st.sampled_from(ENCODINGS))

    return whole.encode(encoding, "surrogatepass" if encoding != "latin-1" else "replace")


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A document in which some bytes were removed, replaced or added."""
    body = bytearray(draw(documents()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        piece = draw(st.sampled_from(PIECES))
        body[at : at + draw(st.integers(0, 3))] = piece
    return bytes(body)


def plainly(body: bytes) -> str | None:
    """The model according to a plain reading, or None if the body must be refused."""
    try:
        found = json.loads(body, object_pairs_hook=lambda pairs: pairs if pairs else [("", None)])
        is_object = isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return None
    named = [value for name, value in found if name == "model"] if is_object else []
    return named[0] if len(named) == 1 and named[0] in NAMES else None


def found_in(body: bytes) -> str | None:
    """The model is the same whether the body is read at once or in slices."""
    large = LargeBody(body)
    while large.read_on():
        pass
    head = admission.BodyRequired("/v1/completions")
    found = [found_by(admission.admit_body(head, body, TABLE, how)) for how in (None, large)]
    assert found[0] == found[1]
    return found[0]


def found_by(outcome: ErrorResponse | admission.Forward) -> str | None:
    if isinstance(outcome, ErrorResponse):
        assert outcome.status in (400, 404)
        json.loads(outcome.body())  # whatever part of the body it quotes
        return None
    return outcome.route.name


@examples(60)
@given(documents())
def test_model_of_a_document(body: bytes) -> None:
    assert found_in(body) == plainly(body)


@examples(60)
@given(broken())
def test_model_of_a_broken_document(body: bytes) -> None:
    assert found_in(body) == plainly(body)


@examples(30)
@given(st.binary(max_size=60))
def test_any_bytes(body: bytes) -> None:
    assert found_in(body) == plainly(body)


def test_model_behind_much_else() -> None:
    """Large, last, deep and duplicated: bodies that a scanner for the name would get wrong."""
    filler = '"x":"' + "model" * 1_000_000 + '",'
    for body, model in (
        ("{" + filler + '"model":"tiny"}', "tiny"),
        ('{"model":"tiny",' + filler + '"model":"tiny"}', None),
        ('{"messages":[{"model":"other/model"}],"model":"tiny"}', "tiny"),
        ('{"mod\\u0065l":"tiny"}', "tiny"),
        ('{"mod\\u0065l":"tiny","model":"tiny"}', None),
        ('{"model":"ti\\u006ey"}', "tiny"),
        ('{"model":1}', None),
        ('{"model":["tiny"]}', None),
        ('{"a":"\\"model\\":\\"other/model\\"","model":"tiny"}', "tiny"),
        ("[" * 100_000 + "]" * 100_000, None),
        ('{"model":"tiny","x":' + "[" * 100_000 + "]" * 100_000 + "}", None),
    ):
        assert found_in(body.encode()) == model
