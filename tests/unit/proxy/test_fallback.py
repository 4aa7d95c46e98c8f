"""Fallbacks: playbooks for the request flow, and the model in a body."""

from __future__ import annotations

import json

import pytest
from flow_playbook import Counting, Playbook
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.proxy.core.body_model import with_model
from moorage.proxy.core.commands import StartResponse
from moorage.proxy.core.request_body import LargeBody

SENT = ("request > read", "body > send a")
PLAYBOOKS: dict[str, tuple[str, list[str], str]] = {
    # name: replicas and fallbacks, events with the command that follows each, recorded status
    "a replica that answers": ("a | small=s", [*SENT, "response 200 > start", "end"], "tiny 200"),
    "its own error passes": ("a | small=s", [*SENT, "response 400 > start", "end"], "tiny 400"),
    "refused": ("a | small=s", [*SENT, "refused > send s", "response 200 > start", "end"], "small 200"),
    "first its other replicas": (
        "a b | small=s", [*SENT, "refused > send b", "refused > send s", "response 200 > start", "end"],
        "small 200",
    ),
    "lost twice": (
        "a b | small=s t", [*SENT, "lost > send b", "lost > send s", "lost > 502 upstream_error"], "small 502"
    ),
    "overloaded": (
        "a | small=s", [*SENT, "response 429 > send s", "response 200 > start", "end"], "small 200"
    ),
    "all overloaded: the last answer passes": (
        "a | small=s", [*SENT, "response 503 > send s", "response 429 > start", "end"], "small 429"
    ),
    "silent: it may still work on it": ("a | small=s", [*SENT, "silent > 504 upstream_timeout"], "tiny 504"),
    "our key is refused": (
        "a | small=s", [*SENT, "response 401 > send s", "response 200 > start", "end"], "small 200"
    ),
    "in their order, each once": (
        "a | small=s | large=l | provider",
        [
            *SENT, "refused > send s", "refused > send l", "refused > send outside",
            "refused > 502 upstream_error",
        ],
        "tiny 502",
    ),
    "one without a replica is passed over": (
        "a | small= | large=l", [*SENT, "refused > send l", "response 200 > start", "end"], "large 200"
    ),
    "not one that the caller may not ask": (
        "a | theirs=x", [*SENT, "refused > 502 upstream_error"], "tiny 502"
    ),
    "a fallback has replicas, too": (
        "a | small=s t", [*SENT, "refused > send s", "refused > send t", "response 200 > start", "end"],
        "small 200",
    ),
    "no replica: after a while": (
        "loading | small=s",
        ["request > read", "body > hold 5", "after 5", "timer > send s", "response 200 > start", "end"],
        "small 200",
    ),
    "no replica, nor one on its way": (
        "- | small=s",
        ["request > read", "body > hold 1", "after 1", "timer > send s", "response 200 > start", "end"],
        "small 200",
    ),
    "a replica within the while": (
        "loading | small=s", ["request > read", "body > hold 5", "routes a | small=s > send a", "leaves"],
        "tiny 499",
    ),
    "a fallback that is not ready either": (
        "loading | small=",
        [
            "request > read", "body > hold 5", "after 5", "timer > hold 60", "after 9",
            "routes loading | small=s > send s", "response 200 > start", "end",
        ],
        "small 200",
    ),
    "none in time": (
        "loading | small=",
        [
            "request > read", "body > hold 5", "after 5", "timer > hold 60", "after 55",
            "timer > 503 model_loading",
        ],
        "tiny 503",
    ),
    "client leaves while held": (
        "loading | small=s", ["request > read", "body > hold 5", "after 2", "leaves"], "tiny 499"
    ),
    "falls back before it waits for another replica": (
        "kept a | small=s", [*SENT, "refused > send s", "response 200 > start", "end"], "small 200"
    ),
    "waits where no fallback is ready": (
        "kept a | small=",
        [*SENT, "refused > hold 5", "after 0.5", "routes kept a | small=s > send s", "leaves"],
        "small 499",
    ),
    "provider": (
        "a | provider", [*SENT, "refused > send outside", "response 200 > start", "end"], "tiny 200"
    ),
    "provider that had closed an idle connection": (
        "a | provider",
        [*SENT, "refused > send outside", "lost > send outside", "response 200 > start", "end"],
        "tiny 200",
    ),
    "provider refuses our key": (
        "a | provider", [*SENT, "refused > send outside", "response 401 > 502 upstream_error"], "tiny 502"
    ),
    "provider forbids": (
        "a | provider | small=s",
        [*SENT, "refused > send outside", "response 403 > send s", "leaves"],
        "small 499",
    ),
    "provider sends elsewhere": (
        "a | provider", [*SENT, "refused > send outside", "response 302 > 502 upstream_error"], "tiny 502"
    ),
    "a replica may forbid": ("a | small=s", [*SENT, "response 403 > start", "end"], "tiny 403"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_playbook(name: str) -> None:
    replicas, events, recorded = PLAYBOOKS[name]
    limiter = Counting(room=9)
    book = Playbook(replicas, limiter)
    for line in events:
        words, sign, expected = line.partition(" >")
        command = book.event(words)
        assert not sign or command == expected.strip(), f"{line!r}, but {command!r}"

    model, _, status = recorded.partition(" ")
    assert book.requests() == {(model, status): 1}
    router = book.router
    assert (dict(router.in_flight), dict(router.in_flight_by_model), dict(router.held)) == (
        {},
        {},
        {},
    )
    assert [len(grant.settled) for grant in limiter.grants] == [1] * len(limiter.grants)


def asked(replicas: str, *events: str, limiter: Counting | None = None) -> Playbook:
    book = Playbook(replicas, limiter)
    for event in ("request", 'body {"a":[1],"model":"tiny","stream":false}', *events):
        book.event(event)
    return book


def test_another_model_gets_its_own_name_and_its_own_reservation() -> None:
    limiter = Counting(room=2)
    flow = asked("a | small=s", "refused", limiter=limiter).flow
    assert (flow.model, flow.path) == ("small", "/v1/chat/completions")
    assert flow.payload == b'{"a":[1],"model":"small","stream":false}'
    assert [ask.permit.name for ask in limiter.asks] == ["tiny", "small"]
    assert [grant.settled for grant in limiter.grants] == [[503], []], "tiny's is given back first"


def test_a_provider_gets_the_clients_body_and_the_reservation_stays() -> None:
    limiter = Counting(room=2)
    flow = asked("a | provider", "refused", limiter=limiter).flow
    assert (flow.model, flow.path) == ("tiny", "/api/chat/completions")
    assert flow.payload == b'{"a":[1],"model":"provider","stream":false}'
    assert [ask.permit.name for ask in limiter.asks] == ["tiny"]


def test_the_answer_names_the_model_of_a_fallback() -> None:
    for fallback, name in (("small=s", "small"), ("provider", "provider")):
        flow = asked(f"a | {fallback}", "refused", limiter=Counting(9)).flow
        command = flow.upstream_head(200, "application/json", 101.0)
        assert isinstance(command, StartResponse)
        assert ("x-moorage-model", name) in command.more
    command = asked("a").flow.upstream_head(200, "application/json", 101.0)
    assert isinstance(command, StartResponse)
    assert not command.more


def test_the_limits_of_a_fallback_count() -> None:
    limiter = Counting(room=1)
    book = asked("a | small=s | provider", limiter=limiter)
    assert book.event("refused") == "send outside", "it is passed over"
    book = asked("a | small=s", limiter=Counting(room=1))
    assert book.event("refused") == "429 rate_limit_exceeded"


def test_fallbacks_are_counted() -> None:
    text = asked("a | small=s", "refused").router.metrics.text().decode()
    assert 'moorage_proxy_fallbacks_total{model="tiny",to="small"} 1.0' in text


def test_a_provider_has_no_other_apis() -> None:
    book = Playbook("a | provider")
    fields = {"Authorization": "Bearer key"}
    book.flow.head("POST", "/v1/messages", fields, None, now=book.now, unix_now=0.0)
    book.event("body")
    assert book.event("refused") == "502 upstream_error"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@examples(50)
@given(
    before=st.dictionaries(st.text().filter("model".__ne__), JSON, max_size=3),
    after=st.dictionaries(st.text().filter("model".__ne__), JSON, max_size=3),
    names=st.tuples(st.text(min_size=1), st.text(min_size=1)),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_only_the_model_changes(
    before: dict[str, object], after: dict[str, object], names: tuple[str, str], ascii_only: bool,
    indent: int | None,
) -> None:  # fmt: skip
    old, new = names
    document = before | {"model": old} | after
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
        document = json.loads(text)

    large = LargeBody(text.encode())
    while large.read_on():
        pass

    changed = with_model(text.encode(), "", new)
    assert changed == with_model(text.encode(), "", new, large.model_span)
    assert changed is not None
    assert json.loads(changed) == document | {"model": new}

    # Every byte around the model is kept: once the model is put back, the body is the original.
    value = json.dumps(new).encode()
    backs = [
        changed[:at] + one + changed[at + len(value) :]
        for at in range(len(changed))
        if changed.startswith(value, at)
        for one in {json.dumps(old, ensure_ascii=known).encode() for known in (True, False)}
    ]
    assert text.encode() in backs


def test_the_model_in_a_form_changes() -> None:
    kind = "multipart/form-data; boundary=x"
    form = b"--x\r\n%b\r\n\r\nF\x00\r\n--x\r\n%b\r\n\r\ntiny\r\n--x--\r\n" % (
        b'Content-Disposition: form-data; name="file"; filename="model"',
        b'Content-Disposition: form-data; name="model"',
    )
    assert with_model(form, kind, "whisper-1") == form.replace(b"tiny", b"whisper-1")


def test_a_body_in_another_encoding_stays_where_it_is() -> None:
    assert with_model('{"model":"tiny"}'.encode("utf-16"), "", "small") is None
