"""Admission of requests for models: admitted requests, error responses, and route table updates."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.admission import (
    AdmissionPolicy,
    BodyRequired,
    Forward,
    LocalResponse,
    admit_body,
    admit_head,
    check_model,
    large_body,
)
from moorage.proxy.core.apis import APIS
from moorage.proxy.core.error_response import ErrorResponse, may_resolve
from moorage.proxy.core.request_body import WHOLE_BYTES
from moorage.proxy.core.routes import IndexedTable, StaleTable, newest_table

NOW = 1_000_000.0
POLICY = AdmissionPolicy(requires_key=True, max_body_bytes=1000)
CHAT = "/v1/chat/completions"


def target(name: str, draining: bool = False) -> Target:
    return Target(
        SessionId("s"),
        KernelId(name),
        host="127.0.0.1",
        port=1,
        key="key",
        engine="custom",
        draining=draining,
    )


def sha(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def grant(secret: str, expires_at: int = 0) -> KeyGrant:
    return KeyGrant(sha(secret), expires_at)


ROOT = KeyGrant(sha("root"), admin=True)
TABLE = IndexedTable(
    RouteTable(
        3,
        (
            ModelRoute("tiny", 7, (target("k1"),)),
            ModelRoute("org/Big-7B", 8, (target("k2"),)),
            ModelRoute("asleep", 9),
            ModelRoute("leaving", 9, (target("k3", draining=True),)),
        ),
        (grant("good"), grant("old", int(NOW) - 1), grant("soon", int(NOW) + 1), ROOT),
    )
)


def head(method="POST", path=CHAT, size=10, table=TABLE, *, policy=POLICY, **headers):
    fields = {"authorization": "Bearer good"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return admit_head(
        method, path, CIMultiDict(fields), size, table=table, policy=policy, unix_now=NOW
    )


@pytest.mark.parametrize("path", APIS)
def test_forwarded_paths_require_the_body(path):
    is_anthropic = path.startswith("/v1/messages")
    assert head(path=path) == BodyRequired(path, grant("good"), is_anthropic=is_anthropic)
    # A path opens the key's own project, which has no name here; administrators' keys open any
    # project's address.
    assert head(path=f"/p/other{path}", authorization="Bearer root") == BodyRequired(
        path, ROOT, "other", is_anthropic=is_anthropic
    )


@pytest.mark.parametrize(
    ("call", "status", "code", "text"),
    [
        ({"path": "/"}, 404, "unknown_url", "GET /v1/models lists the models"),
        ({"path": "/v1/models/", "method": "GET"}, 404, "unknown_url", "mean /v1/models?"),
        ({"path": "/v1/chat/completions/"}, 404, "unknown_url", "mean /v1/chat/completions?"),
        ({"path": "/v1/v1/messages"}, 404, "unknown_url", "mean /v1/messages?"),
        ({"path": "/chat/completions"}, 404, "unknown_url", "clients ends in /v1, and"),
        ({"path": "//v1//embeddings"}, 404, "unknown_url", "mean /v1/embeddings?"),
        ({"path": "/v1/tokenize"}, 404, "unknown_url", "mean /tokenize?"),
        ({"path": "/p/a/embeddings"}, 404, "unknown_url", "mean /p/a/v1/embeddings?"),
        ({"path": "/v1/files"}, 404, "unknown_url", "`capabilities`"),
        ({"path": "/v1/modelsx", "method": "GET"}, 404, "unknown_url", ""),
        ({"method": "GET"}, 405, "method_not_allowed", "Allowed: POST"),
        (
            {"method": "DELETE", "path": "/v1/models/tiny"},
            405,
            "method_not_allowed",
            "Allowed: GET, HEAD",
        ),
        ({"table": None}, 503, "no_routes_yet", "proxy.manager"),
        ({"authorization": ""}, 401, "invalid_api_key", "Authorization: Bearer"),
        ({"authorization": "good"}, 401, "invalid_api_key", "Authorization has no scheme"),
        ({"authorization": "Basic good"}, 401, "invalid_api_key", "has another scheme"),
        ({"authorization": "Bearer "}, 401, "invalid_api_key", "Authorization: Bearer"),
        ({"authorization": "Bearer bad"}, 401, "invalid_api_key", "unknown, revoked or expired"),
        ({"authorization": "Bearer old"}, 401, "invalid_api_key", "expired"),
        (
            {"authorization": "Bearer bad", "path": "/v1/models", "method": "GET"},
            401,
            "invalid_api_key",
            "",
        ),
        ({"size": 1001}, 413, "request_too_large", "1000 bytes"),
        ({"content_encoding": "br"}, 415, "unsupported_content_encoding", "'br'"),
        ({"content_encoding": "zstd"}, 415, "unsupported_content_encoding", "Allowed: gzip"),
    ],
)
def test_rejected_heads(call, status, code, text):
    error = head(**call)
    assert isinstance(error, ErrorResponse)
    assert (error.status, error.code) == (status, code)
    assert text in error.message


def test_error_responses_carry_headers_that_clients_act_on():
    assert head(method="GET").headers == {"Allow": "POST"}
    assert int(head(table=None).headers["Retry-After"]) > 0
    assert head(authorization="").headers == {"WWW-Authenticate": "Bearer"}
    assert head(size=1001).close
    assert head(content_encoding="br").headers == {"Accept-Encoding": "gzip, deflate, identity"}
    assert "proxy.max_body_bytes" in head(size=1001).message


def test_an_unknown_url_is_answered_briefly():
    assert len(head(path="/" + "a" * 1000).message) < 400


@pytest.mark.parametrize("other", ["", "Bearer", "Bearer ", "Basic dTpw", "Negotiate x"])
def test_a_key_counts_beside_an_authorization_without_one(other):
    assert head(authorization=other, x_api_key="good") == BodyRequired(CHAT, grant("good"))
    listed = head("GET", "/v1/models", authorization=other, x_api_key="good")
    assert isinstance(listed, LocalResponse)
    assert "first_id" in json.loads(listed.body), "X-Api-Key is Anthropic's"


def test_a_bearer_key_counts_before_another_one():
    assert head(x_api_key="bad") == BodyRequired(CHAT, grant("good"))
    error = head(authorization="Bearer bad", x_api_key="good")
    assert isinstance(error, ErrorResponse)
    assert "good" not in error.message


def test_no_error_shows_what_may_be_a_key():
    assert "mg-secret" not in head(authorization="mg-secret").message
    assert "mg-secret" not in head(authorization="Token mg-secret").message


@pytest.mark.parametrize("secret", ["good", "soon"])
def test_valid_keys_are_admitted(secret):
    assert head(authorization=f"bearer  {secret}") == BodyRequired(
        CHAT, TABLE.find_key(sha(secret), NOW)
    )


def test_without_keys_everyone_is_admitted():
    assert head(authorization="", policy=AdmissionPolicy(False, 1000)) == BodyRequired(CHAT)


def test_size_at_the_limit_and_unknown_size_are_admitted():
    assert head(size=1000) == BodyRequired(CHAT, grant("good"))
    assert head(size=None) == BodyRequired(CHAT, grant("good"))


def test_models_are_listed_whether_ready_or_not():
    answer = head("GET", "/v1/models")
    assert isinstance(answer, LocalResponse)
    listed = json.loads(answer.body)
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["asleep", "leaving", "org/Big-7B", "tiny"]
    assert listed["data"][-1] == {
        "id": "tiny",
        "object": "model",
        "created": 7,
        "owned_by": "moorage",
        "max_model_len": None,
        "capabilities": None,
        "metrics": None,
    }


def test_single_model_with_a_slash_in_its_name():
    answer = head("GET", "/v1/models/org/Big-7B")
    assert isinstance(answer, LocalResponse)
    assert json.loads(answer.body)["id"] == "org/Big-7B"
    error = head("GET", "/v1/models/nope")
    assert isinstance(error, ErrorResponse)
    assert (error.status, error.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"tiny"}', "tiny"),
        (b' {"stream":true,"model":"org/Big-7B","x":[1]} ', "org/Big-7B"),
        (b'{"model":"tiny","stream":1}', "tiny"),
        (b'{"model":"tiny","tools":[{"model":"a"},{"model":"b","model":"c"}]}', "tiny"),
        (b'{"model":"t\\u0069ny","messages":"\\"model\\""}', "tiny"),
    ],
)
def test_admitted_bodies(body, expected):
    admitted = admit_body(BodyRequired(CHAT), body, TABLE)
    assert isinstance(admitted, Forward)
    assert (admitted.model, admitted.path, admitted.document) == (expected, CHAT, json.loads(body))


@pytest.mark.parametrize(
    ("body", "status", "code", "param", "text"),
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
        (b'{"model":"tiny","model":"tiny"}', 400, None, "model", "more than one"),
        (b'{"mod\\u0065l":"tiny","x":1,"model":"org/Big-7B"}', 400, None, "model", "more than one"),
        ('{"model":"tiny","model":"asleep"}'.encode("utf-16"), 400, None, "model", "more than one"),
        (
            b'{"model":"nope"}',
            404,
            "model_not_found",
            "model",
            "tiny, org/Big-7B, asleep, leaving.",
        ),
    ],
)
def test_rejected_bodies(body, status, code, param, text):
    error = admit_body(BodyRequired(CHAT), body, TABLE)
    assert isinstance(error, ErrorResponse)
    assert (error.status, error.code, error.param) == (status, code, param)
    assert text in error.message


@pytest.mark.parametrize(
    ("model", "status", "code", "resolvable"),
    [
        ("asleep", 503, "model_loading", True),
        ("leaving", 503, "model_loading", True),
        ("nope", 404, "model_not_found", False),
    ],
)
def test_models_without_a_ready_replica(model, status, code, resolvable):
    error = check_model(model, TABLE)
    assert error is not None
    assert (error.status, error.code, may_resolve(error)) == (status, code, resolvable)
    assert model in error.message
    assert ("Retry-After" in error.headers) == resolvable


def test_model_with_a_replica_is_ready():
    assert check_model("tiny", TABLE) is None


def test_errors_name_at_most_five_models():
    table = IndexedTable(RouteTable(1, tuple(ModelRoute(f"m{i}", 0) for i in range(9)), ()))
    error = admit_body(BodyRequired(CHAT), b'{"model":"x"}', table)
    assert isinstance(error, ErrorResponse)
    assert "Known models: m0, m1, m2, m3, m4, …." in error.message


names = st.sampled_from(["tiny", "asleep", "leaving", "nope", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["model", "stream", "x"]), values)
bodies = st.binary(max_size=200) | (objects | values).map(lambda value: json.dumps(value).encode())


@given(bodies)
def test_any_body_is_forwarded_or_rejected_in_openai_format(body):
    result = admit_body(BodyRequired(CHAT), body, TABLE)
    if isinstance(result, Forward):
        assert json.loads(body)["model"] == result.model
        return
    error = json.loads(result.body())
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert result.status in (400, 404, 503)


@given(
    st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]) | st.text(),
    st.sampled_from([*APIS, "/v1/models", "/v1/models/tiny"]) | st.text(),
    st.none() | st.integers(0, 2000),
    st.sampled_from(["Bearer good", "Bearer bad"]) | st.text(),
)
def test_no_request_is_admitted_without_a_valid_key_or_with_a_large_body(
    method, path, size, authorization
):
    result = admit_head(
        method,
        path,
        {"Authorization": authorization},
        size,
        table=TABLE,
        policy=POLICY,
        unix_now=NOW,
    )
    if isinstance(result, ErrorResponse):
        assert set(json.loads(result.body())["error"]) == {"message", "type", "param", "code"}
        return
    assert authorization.split() == ["Bearer", "good"]
    assert isinstance(result, LocalResponse) == path.startswith("/v1/models")
    assert isinstance(result, LocalResponse) or size is None or size <= POLICY.max_body_bytes


def test_older_tables_are_rejected_and_the_same_one_is_accepted():
    older = RouteTable(2, (), ())
    newer = RouteTable(4, (), ())
    assert newest_table(TABLE, older) == StaleTable(held=3, offered=2)
    assert isinstance(newest_table(TABLE, TABLE.whole()), IndexedTable)
    accepted = newest_table(TABLE, newer)
    assert isinstance(accepted, IndexedTable)
    assert accepted.generation == 4
    assert isinstance(newest_table(None, older), IndexedTable)


MODELS = IndexedTable(
    RouteTable(
        3,
        (
            ModelRoute("m-own", 1, (), "vision"),
            ModelRoute("m-shared", 1, (), "speech", ("vision",)),
            ModelRoute("m-public", 1, (), "speech", ("*",)),
            ModelRoute("m-private", 1, (), "speech", ("robots",)),
            ModelRoute("m-unnamed", 1),  # from a manager of the previous release
        ),
        (),
    )
)


@pytest.mark.parametrize(
    ("key", "models"),
    [
        (KeyGrant("a", project="vision"), {"m-own", "m-shared", "m-public", "m-unnamed"}),
        (KeyGrant("a", project="robots"), {"m-public", "m-private", "m-unnamed"}),
        (KeyGrant("a", project="other"), {"m-public", "m-unnamed"}),
        (
            KeyGrant("a", project="other", admin=True),
            {"m-own", "m-shared", "m-public", "m-private", "m-unnamed"},
        ),
        (
            KeyGrant("", project="vision", limits_models=True, models=("m-own", "m-private")),
            {"m-own"},
        ),
        (KeyGrant("a", project="vision", limits_models=True), set()),
        (KeyGrant("", 0, "", "x", True, limits_models=True, models=("m-private",)), {"m-private"}),
        (None, {"m-own", "m-shared", "m-public", "m-private", "m-unnamed"}),
    ],
)
def test_key_asks_the_models_that_it_may_see(key: KeyGrant | None, models: set[str]) -> None:
    keys = () if key is None else (replace(key, sha256=sha("good")),)
    table = IndexedTable(replace(MODELS.whole(), keys=keys))
    policy = AdmissionPolicy(requires_key=key is not None, max_body_bytes=1000)
    admitted = head(table=table, policy=policy)
    assert isinstance(admitted, BodyRequired)
    asked = set()
    for name in table.models:
        answer = admit_body(admitted, json.dumps({"model": name}).encode(), table)
        shown = head("GET", f"/v1/models/{name}", table=table, policy=policy)
        assert isinstance(shown, LocalResponse) is isinstance(answer, Forward)
        if isinstance(answer, Forward):
            asked.add(name)
            continue

        assert isinstance(answer, ErrorResponse)
        assert answer.status == 404
        assert not any(other in answer.message for other in table.models.keys() - models - {name})

    assert asked == models
    listed = head("GET", "/v1/models", table=table, policy=policy)
    assert isinstance(listed, LocalResponse)
    assert {model["id"] for model in json.loads(listed.body)["data"]} == models


@pytest.mark.parametrize(
    ("member", "in_slices"),
    [(b'"n":1', False), (b'"\\u006e":1', True), (b'"x":"\\u00e9\\u00e9"', True)],
)
def test_bodies_that_take_many_steps_are_read_in_slices(member: bytes, in_slices: bool) -> None:
    members = b",".join([member] * (WHOLE_BYTES // (len(member) + 1) - 10))
    reader = large_body(BodyRequired(CHAT, grant("good")), b'{"model":"m",%b}' % members)
    assert (reader is not None) == in_slices
