"""Affinity: where requests with the same beginning are sent, and how much load a replica gets this
way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from flow_playbook import Playbook, target
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from tests.examples import examples

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core.affinity import PREFIX_CHARS, key_of, pick_affine, prefix_of

NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)
KEYS = st.integers(1, (1 << 64) - 1)


def pick(
    targets: list[Target], key: int, loads: dict[str, int] | None = None, **more: Any
) -> Target | None:
    in_flight = {KernelId(name): count for name, count in (loads or {}).items()}
    options = {"max_load": 1.25, "ejected": {}, "now": 0.0} | more
    return pick_affine(targets, key, in_flight=in_flight, **options)


@examples(50)
@given(NAMES, KEYS, st.data(), st.floats(1, 3))
def test_nobody_gets_more_than_its_share(
    names: list[str], key: int, data: st.DataObject, most: float
) -> None:
    loads = {name: data.draw(st.integers(0, 20)) for name in names}
    found = pick([target(name) for name in names], key, loads, max_load=most)
    assert found is not None
    assert loads[found.kernel_id] + 1 <= ceil(most * (sum(loads.values()) + 1) / len(names))


@examples(50)
@given(NAMES, KEYS, st.randoms())
def test_the_order_of_the_table_does_not_matter(names: list[str], key: int, random: Any) -> None:
    targets = [target(name) for name in names]
    shuffled = random.sample(targets, len(targets))
    assert pick(targets, key) == pick(shuffled, key)


@examples(50)
@given(NAMES, KEYS, st.data())
def test_a_replica_that_goes_moves_its_own_keys_only(
    names: list[str], key: int, data: st.DataObject
) -> None:
    targets = [target(name) for name in names]
    gone = data.draw(st.sampled_from(targets))
    before = pick(targets, key)
    after = pick([t for t in targets if t is not gone], key)
    assert before in (after, gone)


@examples(50)
@given(NAMES, KEYS, st.data())
def test_a_draining_or_ejected_replica_gets_nothing(
    names: list[str], key: int, data: st.DataObject
) -> None:
    targets = [target(name) for name in names]
    out = set(data.draw(st.lists(st.sampled_from(names))))
    draining = [replace(t, draining=t.kernel_id in out) for t in targets]
    found = pick(draining, key)
    ejected = pick(targets, key, ejected={KernelId(name): 5.0 for name in out})
    for one in (found, ejected):
        assert (one is None) == (len(out) == len(names))
        assert one is None or one.kernel_id not in out


def test_keys_spread_evenly() -> None:
    targets = [target(name) for name in ("a", "b", "c", "d")]
    counts = Counter(
        found.kernel_id for n in range(1, 4001) if (found := pick(targets, key_of(str(n), {})))
    )
    assert min(counts.values()) > 850


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "What now?"}]
LONG = "x" * PREFIX_CHARS


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"messages": CHAT}, {"messages": ANSWERED}, True),
        ({"messages": CHAT}, {"messages": [CHAT[0], {"role": "user", "content": "Bye"}]}, False),
        ({"messages": CHAT, "temperature": 1}, {"temperature": 0, "messages": CHAT}, True),
        ({"prompt": LONG + "a"}, {"prompt": LONG + "b"}, True),
        ({"prompt": "a"}, {"prompt": "b"}, False),
        ({"prompt": ["a", "b"]}, {"prompt": ["a", "c"]}, True),
        ({"prompt": [1, 2]}, {"prompt": [1, 3]}, False),
        ({"system": "a", "messages": CHAT}, {"system": "b", "messages": CHAT}, False),
        ({"instructions": "a", "input": "b"}, {"instructions": "a", "input": "c"}, False),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "b"}]}]},
            False,
        ),
    ],
)
def test_what_begins_alike(one: dict[str, Any], other: dict[str, Any], alike: bool) -> None:
    assert (key_of("", one) == key_of("", other)) == alike
    assert key_of("", one)


VALUES = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner)
    ),
    max_leaves=6,
)


@examples(50)
@given(
    st.dictionaries(
        st.sampled_from(["messages", "prompt", "input", "system", "instructions"]), VALUES
    )
)
def test_any_document_has_a_prefix(document: dict[str, Any]) -> None:
    assert len(prefix_of(document).replace("\0", "")) <= PREFIX_CHARS
    assert key_of("s", document) == key_of("s", {})


def test_a_document_without_a_prompt_has_no_key() -> None:
    assert key_of("", {"model": "tiny"}) == 0


def sent_to(prompt: str, *, session: str = "", prefix: bool = False) -> str:
    book = Playbook("a b c d e f g h")
    table = book.router.table
    assert table is not None
    table.models["tiny"] = replace(table.models["tiny"], prefix_affinity=prefix)
    fields = CIMultiDict({"Authorization": "Bearer key"})
    if session:
        fields["X-Moorage-Session"] = session
    book.flow.head("POST", "/v1/completions", fields, None, now=book.now, unix_now=0.0)
    return book.event(f'body {{"model":"tiny","prompt":"{prompt}"}}')


def test_only_who_asks_for_affinity_gets_it() -> None:
    prompts = [f"prompt {n}" for n in range(8)]
    assert {sent_to(prompt) for prompt in prompts} == {"send a"}, "the first draw, always"
    assert len({sent_to(prompt, prefix=True) for prompt in prompts}) > 3
    assert sent_to("one", prefix=True) == sent_to("one", prefix=True)
    assert len({sent_to(prompt, session="s1") for prompt in prompts}) == 1
    assert len({sent_to("one", session=prompt) for prompt in prompts}) > 3
