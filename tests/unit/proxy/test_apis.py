"""APIs that are passed through: which engines have them, at which address and with which key, and
errors in the form that clients of the API expect."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core import error_response
from moorage.proxy.core.admission import (
    AdmissionPolicy,
    BodyRequired,
    Forward,
    LocalResponse,
    admit_body,
    admit_head,
)
from moorage.proxy.core.apis import APIS, speaks_anthropic
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.forms import text_fields
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.core.stream_end import closing_event

POLICY = AdmissionPolicy(requires_key=True, max_body_bytes=1000)


def grant(secret: str, **fields: object) -> KeyGrant:
    return KeyGrant(hashlib.sha256(secret.encode()).hexdigest(), **fields)


def model(
    name: str, engine: str, project: str = "", shared_with: tuple[str, ...] = ()
) -> ModelRoute:
    found = Target(
        SessionId("s"), KernelId(name), host="127.0.0.1", port=1, key="key", engine=engine
    )
    return ModelRoute(
        name, 1, targets=(found,), project=project, shared_with=shared_with, max_model_len=4096
    )


TABLE = IndexedTable(
    RouteTable(
        1,
        (
            model("on-vllm", "vllm", "vision"),
            model("on-llamacpp", "llamacpp", "vision"),
            model("on-own", "custom", "speech", ("vision",)),
            model("hidden", "custom", "speech"),
        ),
        (grant("mine", project="vision"), grant("root", admin=True)),
    )
)


def ask(path: str, name: str, key: str = "mine") -> str:
    """The model and path that a request reaches, or the refusal's status and code."""
    body = json.dumps({"model": name}).encode()
    head = admit_head(
        "POST",
        path,
        CIMultiDict(Authorization=f"Bearer {key}"),
        len(body),
        table=TABLE,
        policy=POLICY,
        unix_now=0.0,
    )
    outcome = admit_body(head, body, TABLE) if isinstance(head, BodyRequired) else head
    if isinstance(outcome, Forward):
        return f"{outcome.model} {outcome.path}"

    assert isinstance(outcome, ErrorResponse)
    return f"{outcome.status} {outcome.code}"


@pytest.mark.parametrize(
    ("path", "vllm", "llamacpp"),
    [
        ("/v1/messages", True, True),
        ("/v1/messages/count_tokens", True, True),
        ("/v1/rerank", True, True),
        ("/v1/score", True, False),
        ("/pooling", True, False),
        ("/classify", True, False),
        ("/v1/reranking", False, True),
        ("/v1/audio/speech", False, False),
        ("/v1/responses/input_tokens", False, True),
    ],
)
def test_engine_has_the_api_or_the_answer_is_404(path: str, vllm: bool, llamacpp: bool) -> None:
    for name, has in (("on-vllm", vllm), ("on-llamacpp", llamacpp), ("on-own", True)):
        assert ask(path, name) == (f"{name} {path}" if has else "404 unknown_url")


@pytest.mark.parametrize(
    ("path", "name", "key", "expected"),
    [
        ("/p/vision/v1/embeddings", "on-vllm", "mine", "on-vllm /v1/embeddings"),
        ("/p/vision/v1/embeddings", "on-own", "mine", "on-own /v1/embeddings"),
        ("/p/vision/v1/embeddings", "hidden", "mine", "404 model_not_found"),
        ("/p/speech/v1/embeddings", "on-own", "mine", "403 project_not_allowed"),
        ("/p/nowhere/v1/embeddings", "on-own", "mine", "403 project_not_allowed"),
        ("/p/speech/v1/embeddings", "hidden", "root", "hidden /v1/embeddings"),
        ("/p/speech/v1/embeddings", "on-vllm", "root", "404 model_not_found"),
        ("/p/vision/v1/nothing", "on-vllm", "mine", "404 unknown_url"),
        ("/p/vision", "on-vllm", "mine", "404 unknown_url"),
        ("/p//v1/embeddings", "on-vllm", "mine", "404 unknown_url"),
    ],
)
def test_address_of_a_project(path: str, name: str, key: str, expected: str) -> None:
    assert ask(path, name, key) == expected


def models(query: str, **fields: str) -> dict[str, Any]:
    headers = CIMultiDict({name.replace("_", "-"): value for name, value in fields.items()})
    answer = admit_head(
        "GET", "/v1/models", headers, None, table=TABLE, policy=POLICY, unix_now=0.0, query=query
    )
    assert isinstance(answer, LocalResponse)
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_models_as_anthropics_clients_expect_them() -> None:
    for fields in (
        {"X_Api_Key": "mine"},
        {"Anthropic_Version": "1", "Authorization": "Bearer mine"},
    ):
        found = models("", **fields)
        assert (found["first_id"], found["last_id"], found["has_more"]) == (
            "on-llamacpp",
            "on-vllm",
            False,
        )
        created_at = "1970-01-01T00:00:01Z"
        assert found["data"][0] == {
            "type": "model",
            "id": "on-llamacpp",
            "display_name": "on-llamacpp",
            "created_at": created_at,
            "lifecycle": "active",
            "max_input_tokens": 4096,
        }

    assert models("", Authorization="Bearer mine")["object"] == "list"
    assert models("", Authorization="Bearer mine", X_Api_Key="mine")["object"] == "list"


def test_models_tell_their_context_and_apis() -> None:
    found = {model["id"]: model for model in models("", Authorization="Bearer mine")["data"]}
    assert {model["max_model_len"] for model in found.values()} == {4096}
    for name, engine in (("on-vllm", "vllm"), ("on-llamacpp", "llamacpp")):
        capabilities = set(found[name]["capabilities"])
        answered = {
            path for path, api in APIS.items() if not api.in_form and ask(path, name)[:3] != "404"
        }
        forms = {path for path, api in APIS.items() if api.in_form and engine in api.engines}
        realtime = {"/v1/realtime"} if engine == "vllm" else set()
        assert capabilities == answered | forms | realtime

    assert found["on-own"]["capabilities"] is None


@pytest.mark.parametrize(
    ("query", "expected", "has_more"),
    [
        ("limit=2", ["on-llamacpp", "on-own"], True),
        ("limit=2&after_id=on-own", ["on-vllm"], False),
        ("limit=1&before_id=on-vllm", ["on-own"], True),
        ("limit=9&before_id=on-own", ["on-llamacpp"], False),
        ("before_id=on-llamacpp", [], False),
        ("limit=3&after_id=nothing", ["on-llamacpp", "on-own", "on-vllm"], False),
        ("limit=x", ["on-llamacpp", "on-own", "on-vllm"], False),
        ("limit=0", ["on-llamacpp"], True),
        (f"limit={'9' * 5000}", ["on-llamacpp", "on-own", "on-vllm"], False),
    ],
)
def test_pages_of_anthropics_list(query: str, expected: list[str], has_more: bool) -> None:
    found = models(query, X_Api_Key="mine")
    assert ([model["id"] for model in found["data"]], found["has_more"]) == (expected, has_more)


def test_models_of_a_project() -> None:
    def listed(key: str) -> set[str]:
        fields = CIMultiDict(Authorization=f"Bearer {key}")
        answer = admit_head(
            "GET", "/p/vision/v1/models", fields, None, table=TABLE, policy=POLICY, unix_now=0.0
        )
        assert isinstance(answer, LocalResponse)
        return {found["id"] for found in json.loads(answer.body)["data"]}

    assert listed("mine") == listed("root") == {"on-vllm", "on-llamacpp", "on-own"}


@pytest.mark.parametrize(
    ("fields", "admitted"),
    [
        ({"X-Api-Key": "mine"}, True),
        ({"x-api-key": " mine "}, True),
        ({"X-Api-Key": "other"}, False),
        ({"X-Api-Key": ""}, False),
        ({"X-Api-Key": "mine", "Authorization": "Bearer other"}, False),
        ({"X-Api-Key": "other", "Authorization": "Bearer mine"}, True),
        ({"X-Api-Key": "mine", "Authorization": "Basic bWluZQ=="}, True),
        ({"X-Api-Key": "mine", "Authorization": "Bearer "}, True),
    ],
)
def test_key_as_anthropics_clients_send_it(fields: dict[str, str], admitted: bool) -> None:
    head = admit_head(
        "POST", "/v1/messages", CIMultiDict(fields), 2, table=TABLE, policy=POLICY, unix_now=0.0
    )
    assert isinstance(head, BodyRequired) is admitted


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (error_response.invalid_key(given=False), "authentication_error"),
        (error_response.other_project("x"), "permission_error"),
        (error_response.unknown_model("x", ()), "not_found_error"),
        (error_response.model_loading("x"), "overloaded_error"),
        (error_response.upstream_error("x"), "api_error"),
        (error_response.malformed_json("x"), "invalid_request_error"),
    ],
)
def test_errors_in_anthropics_format(error: ErrorResponse, kind: str) -> None:
    found = json.loads(error.body(anthropic=True))
    assert found == {"type": "error", "error": {"type": kind, "message": error.message}}


def test_end_of_a_broken_stream_in_anthropics_format() -> None:
    event = closing_event(b'data: {"x":1}\n\n', Failure.INTERRUPTED, anthropic=True)
    assert event.startswith(b'event: error\ndata: {"type": "error", "error": {"type": "api_error"')
    assert event.endswith(b"}}\n\n")
    done = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    assert closing_event(done, Failure.INTERRUPTED, anthropic=True) == b""


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        ("/v1/messages", {}, True),
        ("/v1/messages/count_tokens", {"Authorization": "Bearer x"}, True),
        ("/v1/models", {"X-Api-Key": "x"}, True),
        ("/v1/models/tiny", {"anthropic-version": "2023-06-01"}, True),
        ("/v1/nothing", {"anthropic-version": "2023-06-01"}, True),
        ("/v1/models", {"Authorization": "Bearer x"}, False),
        ("/v1/models", {"Authorization": "Bearer x", "X-Api-Key": "x"}, False),
        ("/v1/chat/completions", {"X-Api-Key": "x"}, False),
    ],
)
def test_who_speaks_anthropic(path: str, fields: dict[str, str], expected: bool) -> None:
    assert speaks_anthropic(path, CIMultiDict(fields)) is expected


def form(*parts: tuple[str, bytes], boundary: str = "b-1") -> bytes:
    """``parts``: for each part, its Content-Disposition after ``form-data; ``, and its value."""
    lines = [
        b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n"
        % (boundary.encode(), name.encode(), value)
        for name, value in parts
    ]
    return b"".join(lines) + b"--%b--\r\n" % boundary.encode()


FILE = ('name="file"; filename="a.wav"', b"RIFF\r\n\r\n--b-\x00\xff")
NAMED_FILE = b'Content-Disposition: form-data; name="file"'
FORM_TYPE = "multipart/form-data; boundary=b-1"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (form(FILE, ('name="model"', b"on-vllm")), "on-vllm"),
        (form(('name="model"', b"on-vllm"), ('name="stream"', b"true"), FILE), "on-vllm stream"),
        (form(('name="model"', b"on-llamacpp"), FILE), "404"),
        (form(FILE), "400"),
        (form(('name="model"', b"on-vllm"), ('name="model"', b"on-own")), "400"),
        (form(('name="model"; filename="x"', b"on-vllm")), "400"),
        (form(('name="model"', b"on-vllm"))[:-6], "400"),
        (b"", "400"),
        (b'{"model":"on-vllm"}', "400"),
    ],
)
def test_model_of_a_form(body: bytes, expected: str) -> None:
    head = BodyRequired(
        "/v1/audio/translations", grant("mine", project="vision"), content_type=FORM_TYPE
    )
    outcome = admit_body(head, body, TABLE)
    if isinstance(outcome, Forward):
        assert outcome.model + (" stream" if outcome.document["stream"] else "") == expected
    else:
        assert str(outcome.status) == expected


@pytest.mark.parametrize(
    ("part", "refusal"),
    [
        (b"X-A: 1\r\n" * 16, "more than 16 lines"),
        (b"X-A: " + b"a" * 4096 + b"\r\n", "exceeds 4096 bytes"),
        (NAMED_FILE + b"; a" * 17 + b"\r\n\r\n\r\n--b-1\r\n", "16 parameters"),
    ],
    ids=["lines", "bytes", "parameters"],
)
def test_head_of_a_part_is_bounded(part: bytes, refusal: str) -> None:
    head = b"--b-1\r\n"
    whole = form(('name="model"', b"on-vllm"))
    with pytest.raises(ValueError, match=refusal):
        text_fields(whole.replace(head, head + part, 1), FORM_TYPE)
    with pytest.raises(ValueError, match="Content-Type has more than 16 parameters"):
        text_fields(whole, FORM_TYPE + "; a" * 17)


@given(
    st.binary(max_size=300) | st.binary(max_size=40).map(lambda tail: form(FILE)[:-8] + tail),
    st.text(),
)
def test_any_form_is_read_or_refused(body: bytes, boundary: str) -> None:
    for content_type in (FORM_TYPE, f'multipart/form-data; boundary="{boundary}"', boundary):
        try:
            text_fields(body, content_type)
        except ValueError:
            pass
