"""What is let in, and what each refusal says."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.admission import (
    FORWARDED,
    Answer,
    Forward,
    NeedBody,
    Rules,
    admit_body,
    admit_head,
    admit_model,
)
from moorage.proxy.core.error_response import Refuse, may_pass
from moorage.proxy.core.routes import Stale, Table, replace

NOW = 1_000_000.0
RULES = Rules(needs_key=True, max_body_bytes=1000)
CHAT = "/v1/chat/completions"


def target(name: str, draining: bool = False) -> Target:
    return Target(SessionId("s"), KernelId(name), "127.0.0.1", 1, "key", "custom", draining)


def grant(secret: str, expires_at: int = 0) -> KeyGrant:
    return KeyGrant(hashlib.sha256(secret.encode()).hexdigest(), expires_at)


TABLE = Table(
    RouteTable(
        3,
        (
            ModelRoute("tiny", 7, (target("k1"),)),
            ModelRoute("org/Big-7B", 8, (target("k2"),)),
            ModelRoute("asleep", 9),
            ModelRoute("leaving", 9, (target("k3", draining=True),)),
        ),
        (grant("good"), grant("old", int(NOW) - 1), grant("soon", int(NOW) + 1)),
    )
)


def head(method="POST", path=CHAT, size=10, table=TABLE, rules=RULES, **headers):
    given_headers = {"authorization": "Bearer good"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return admit_head(method, path, CIMultiDict(given_headers), size, table, rules, NOW)


@pytest.mark.parametrize("path", FORWARDED)
def test_the_served_paths_ask_for_the_body(path):
    assert head(path=path) == NeedBody(path)


@pytest.mark.parametrize(
    ("call", "status", "code", "says"),
    [
        ({"path": "/"}, 404, "unknown_url", "POST /v1/chat/completions"),
        ({"path": "/v1/models/", "method": "GET"}, 404, "unknown_url", "GET /v1/models"),
        ({"path": "/v1/chat/completions/"}, 404, "unknown_url", ""),
        ({"path": "/v1/modelsx", "method": "GET"}, 404, "unknown_url", ""),
        ({"method": "GET"}, 405, "method_not_allowed", "Allowed: POST"),
        ({"method": "DELETE", "path": "/v1/models/tiny"}, 405, "method_not_allowed", "Allowed: GET, HEAD"),
        ({"table": None}, 503, "no_routes_yet", "proxy.manager"),
        ({"authorization": ""}, 401, "invalid_api_key", "Authorization: Bearer"),
        ({"authorization": "good"}, 401, "invalid_api_key", "Authorization: Bearer"),
        ({"authorization": "Basic good"}, 401, "invalid_api_key", "Authorization: Bearer"),
        ({"authorization": "Bearer "}, 401, "invalid_api_key", "Authorization: Bearer"),
        ({"authorization": "Bearer bad"}, 401, "invalid_api_key", "not valid"),
        ({"authorization": "Bearer old"}, 401, "invalid_api_key", "expired"),
        ({"authorization": "Bearer bad", "path": "/v1/models", "method": "GET"}, 401, "invalid_api_key", ""),
        ({"size": 1001}, 413, "request_too_large", "1000 bytes"),
        ({"content_encoding": "gzip"}, 415, "unsupported_content_encoding", "gzip"),
    ],
)
def test_refused_by_the_head(call, status, code, says):
    refused = head(**call)
    assert isinstance(refused, Refuse)
    assert (refused.status, refused.code) == (status, code)
    assert says in refused.message


def test_refusals_carry_the_headers_that_clients_act_on():
    assert head(method="GET").headers == {"Allow": "POST"}
    assert int(head(table=None).headers["Retry-After"]) > 0
    assert head(authorization="").headers == {"WWW-Authenticate": "Bearer"}
    assert head(size=1001).close
    assert "proxy.max_body_bytes" in head(size=1001).message


@pytest.mark.parametrize("secret", ["good", "soon"])
def test_keys_that_are_let_in(secret):
    assert head(authorization=f"bearer  {secret}") == NeedBody(CHAT)


def test_without_keys_anybody_is_let_in():
    assert head(authorization="", rules=Rules(False, 1000)) == NeedBody(CHAT)


def test_size_at_the_limit_and_unknown_size_are_let_in():
    assert head(size=1000) == NeedBody(CHAT)
    assert head(size=None) == NeedBody(CHAT)


def test_models_are_listed_whether_loaded_or_not():
    answer = head("GET", "/v1/models")
    assert isinstance(answer, Answer)
    listed = json.loads(answer.body)
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["tiny", "org/Big-7B", "asleep", "leaving"]
    assert listed["data"][0] == {"id": "tiny", "object": "model", "created": 7, "owned_by": "moorage"}


def test_one_model_also_with_a_slash():
    answer = head("GET", "/v1/models/org/Big-7B")
    assert isinstance(answer, Answer)
    assert json.loads(answer.body)["id"] == "org/Big-7B"
    refused = head("GET", "/v1/models/nope")
    assert isinstance(refused, Refuse)
    assert (refused.status, refused.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"tiny"}', Forward("tiny", CHAT, False)),
        (b' {"stream":true,"model":"org/Big-7B","x":[1]} ', Forward("org/Big-7B", CHAT, True)),
        (b'{"model":"tiny","stream":1}', Forward("tiny", CHAT, False)),
    ],
)
def test_forwarded(body, expected):
    assert admit_body(CHAT, body, TABLE) == expected


@pytest.mark.parametrize(
    ("body", "status", "code", "param", "says"),
    [
        (b"", 400, None, None, "empty"),
        (b"{", 400, None, None, "not valid JSON"),
        (b"\xff\xfe\xfa", 400, None, None, "not valid JSON"),
        (b"[" * 100_000, 400, None, None, "not valid JSON"),
        (b"[]", 400, None, None, "an array"),
        (b'"tiny"', 400, None, None, "a string"),
        (b"null", 400, None, None, "null"),
        (b"3", 400, None, None, "a number"),
        (b"{}", 400, None, "model", "no `model`"),
        (b'{"model":null}', 400, None, "model", "null"),
        (b'{"model":7}', 400, None, "model", "a number"),
        (b'{"model":true}', 400, None, "model", "a boolean"),
        (b'{"model":""}', 400, None, "model", "an empty string"),
        (b'{"model":["tiny"]}', 400, None, "model", "an array"),
        (b'{"model":{}}', 400, None, "model", "an object"),
        (b'{"model":"nope"}', 404, "model_not_found", "model", "tiny, org/Big-7B, asleep, leaving."),
    ],
)
def test_refused_by_the_body(body, status, code, param, says):
    refused = admit_body(CHAT, body, TABLE)
    assert isinstance(refused, Refuse)
    assert (refused.status, refused.code, refused.param) == (status, code, param)
    assert says in refused.message


@pytest.mark.parametrize(
    ("model", "status", "code", "passes"),
    [
        ("asleep", 503, "model_loading", True),
        ("leaving", 503, "model_loading", True),
        ("nope", 404, "model_not_found", False),
    ],
)
def test_refused_for_want_of_a_replica(model, status, code, passes):
    refused = admit_model(model, TABLE)
    assert refused is not None
    assert (refused.status, refused.code, may_pass(refused)) == (status, code, passes)
    assert model in refused.message
    assert ("Retry-After" in refused.headers) == passes


def test_a_model_with_a_replica_is_ready():
    assert admit_model("tiny", TABLE) is None


def test_at_most_five_known_models_are_named():
    table = Table(RouteTable(1, tuple(ModelRoute(f"m{i}", 0) for i in range(9)), ()))
    refused = admit_body(CHAT, b'{"model":"x"}', table)
    assert isinstance(refused, Refuse)
    assert "Known models: m0, m1, m2, m3, m4, …." in refused.message


names = st.sampled_from(["tiny", "asleep", "leaving", "nope", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["model", "stream", "x"]), values)
bodies = st.binary(max_size=200) | (objects | values).map(lambda value: json.dumps(value).encode())


@given(bodies)
def test_any_body_is_forwarded_or_refused_in_openai_shape(body):
    verdict = admit_body(CHAT, body, TABLE)
    if isinstance(verdict, Forward):
        assert json.loads(body)["model"] == verdict.model
        return
    error = json.loads(verdict.body())
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert verdict.status in (400, 404, 503)


@given(
    st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]) | st.text(),
    st.sampled_from([*FORWARDED, "/v1/models", "/v1/models/tiny"]) | st.text(),
    st.none() | st.integers(0, 2000),
    st.sampled_from(["Bearer good", "Bearer bad"]) | st.text(),
)
def test_nobody_gets_in_without_a_good_key_or_with_too_large_a_body(method, path, size, authorization):
    verdict = admit_head(method, path, {"Authorization": authorization}, size, TABLE, RULES, NOW)
    if isinstance(verdict, Refuse):
        assert set(json.loads(verdict.body())["error"]) == {"message", "type", "param", "code"}
        return
    assert authorization.split() == ["Bearer", "good"]
    assert isinstance(verdict, Answer) == path.startswith("/v1/models")
    assert isinstance(verdict, Answer) or size is None or size <= RULES.max_body_bytes


def test_an_older_table_is_refused_and_the_same_one_taken_again():
    older, newer = RouteTable(2, (), ()), RouteTable(4, (), ())
    assert replace(TABLE, older) == Stale(held=3, offered=2)
    assert isinstance(replace(TABLE, TABLE.source), Table)
    taken = replace(TABLE, newer)
    assert isinstance(taken, Table)
    assert taken.generation == 4
    assert isinstance(replace(None, older), Table)
