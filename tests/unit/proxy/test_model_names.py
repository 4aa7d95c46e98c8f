"""Aliases and the default model: who gets which model, with which body, and what errors say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flow_playbook import CHAT, Playbook, describe
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
)
from moorage.proxy.core.body_model import with_model, with_model_added
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.model_names import ModelNames
from moorage.proxy.core.request_body import WHOLE_BYTES, LargeBody, LargeForm, read_form
from moorage.proxy.core.routes import IndexedTable

MINE = KeyGrant("a", project="p")
ONLY_TINY = KeyGrant("b", project="p", limits_models=True, models=("tiny",))
REPLICA = Target(
    SessionId("s"),
    KernelId("k"),
    host="h",
    port=1,
    key="",
    engine="vllm",
    adapters=("tiny:sql",),
)
TABLE = IndexedTable(
    RouteTable(
        1,
        (
            ModelRoute("tiny", 1, (REPLICA,), "p", adapters=("tiny:sql",)),
            ModelRoute("theirs", 1, (REPLICA,), "q"),
            ModelRoute("gpt-4", 1, (REPLICA,), "p"),
        ),
        (),
    )
)
NAMES = ModelNames(
    default="mini",
    aliases={
        "mini": "tiny",
        "sql": "tiny:sql",
        "gpt-4": "tiny",
        "secret": "theirs",
        "gone": "none",
        "chain": "mini",
    },
)
KIND = "multipart/form-data; boundary=b"
FORM = b'--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n1\r\n--b--\r\n'


def admit(body: bytes, key: KeyGrant = MINE, names: ModelNames = NAMES) -> Forward | ErrorResponse:
    large = LargeBody(body) if len(body) > WHOLE_BYTES else None
    while large is not None and large.read_on():
        pass
    return admit_body(BodyRequired(CHAT, key), body, TABLE, large, names=names)


@pytest.mark.parametrize("padding", [0, 100_000], ids=["", "large"])
@pytest.mark.parametrize(
    ("sent", "model"),
    [
        ({"model": "tiny"}, "tiny"),
        ({"model": "mini"}, "tiny"),
        ({"model": "sql"}, "tiny:sql"),
        ({"model": "gpt-4"}, "gpt-4"),  # a model of this name takes precedence
        ({}, "tiny"),
        ({"model": None}, "tiny"),
    ],
)
def test_the_replica_gets_its_own_name(sent: dict[str, object], model: str, padding: int) -> None:
    document = {"prompt": "é" * padding} | sent
    body = json.dumps(document, ensure_ascii=False).encode()
    for mark in (b"", b"\xef\xbb\xbf"):
        for key in (MINE, ONLY_TINY) if model != "gpt-4" else (MINE,):
            forward = admit(mark + body, key)
            assert isinstance(forward, Forward)
            assert forward.model == model
            if sent.get("model") == model:
                assert forward.renamed is None, "its bytes are unchanged"
                continue

            assert forward.renamed is not None
            assert json.loads(forward.renamed) == document | {"model": model}
            if (span := forward.model_span) is not None:
                assert forward.renamed[slice(*span)] == json.dumps(model).encode()
                again = with_model(forward.renamed, "", "other", span)
                assert again is not None
                assert json.loads(again)["model"] == "other", "as for a fallback"


@pytest.mark.parametrize("body", [b"{}", b" { } ", b'{"a":{}}', b'{"a":"}"}\n', b"{\n}"])
def test_a_model_is_added_to_any_object(body: bytes) -> None:
    added = with_model_added(body, "", 'a "b"')
    assert added is not None
    assert json.loads(added.body) == json.loads(body) | {"model": 'a "b"'}
    assert added.span is not None
    assert json.loads(added.body[slice(*added.span)]) == 'a "b"'


def test_a_model_is_added_to_a_form() -> None:
    added = with_model_added(FORM, KIND, "tiny")
    assert added is not None
    assert read_form(added.body, KIND) == {"n": "1", "model": "tiny", "stream": False}
    assert added.body.endswith(FORM)
    large = LargeForm(added.body, KIND)
    assert not large.read_on()
    assert large.model_span == added.span


@pytest.mark.parametrize(
    ("body", "key", "message"),
    [
        (b'{"model":"other"}', MINE, "'other' does not exist. Known models: tiny, gpt-4, tiny:sql, mini, "),
        (b'{"model":"secret"}', MINE, "'secret' is an alias (proxy.model_aliases) of a model that"),
        (b'{"model":"gone"}', MINE, "'gone' is an alias (proxy.model_aliases) of a model that"),
        (b'{"model":"chain"}', MINE, "'chain' is an alias"),
        (b"{}", KeyGrant("c", project="q"), "the default one (proxy.default_model) does not exist"),
    ],
    ids=["unknown", "not allowed", "gone", "alias of an alias", "default"],
)  # fmt: skip
def test_an_error_names_the_alias_and_hides_its_model(
    body: bytes, key: KeyGrant, message: str
) -> None:
    error = admit(body, key)
    assert isinstance(error, ErrorResponse)
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert message in error.message
    assert "theirs" not in error.message or key is not MINE


def test_without_a_default_a_request_names_its_model() -> None:
    for body in (b"{}", b'{"model":null}'):
        error = admit(body, names=ModelNames())
        assert isinstance(error, ErrorResponse)
        assert (error.status, error.param) == (400, "model")


def test_only_utf_8_can_be_changed() -> None:
    for text in ('{"model":"mini"}', "{}"):
        error = admit(text.encode("utf-16"))
        assert isinstance(error, ErrorResponse)
        assert (error.status, error.param) == (400, "model")
        assert "UTF-8" in error.message


def models(path: str, **headers: str) -> Any:
    fields = CIMultiDict(headers)
    policy = AdmissionPolicy(False, 1000, names=NAMES)
    found = admit_head("GET", path, fields, None, table=TABLE, policy=policy, unix_now=0.0)
    return json.loads(found.body if isinstance(found, LocalResponse) else found.body())


def test_the_list_has_the_aliases() -> None:
    shown = {model["id"]: model.get("alias_of") for model in models("/p/p/v1/models")["data"]}
    assert shown == {
        "gpt-4": None,
        "mini": "tiny",
        "sql": "tiny:sql",
        "tiny": None,
        "tiny:sql": None,
    }
    assert models("/v1/models/sql")["parent"] == "tiny"
    anthropic = models("/v1/models/mini", **{"Anthropic-Version": "1"})
    assert (anthropic["id"], anthropic["display_name"]) == ("mini", "tiny")
    assert models("/v1/models/gone")["error"]["code"] == "model_not_found"


def test_a_fallback_gets_the_request_of_an_alias() -> None:
    playbook = Playbook("a | small=s", default_model="tiny", model_aliases={"mini": "tiny"})
    for number, body in enumerate((b'{"a":1,"model":"mini"}', b'{"a":1}')):
        request = playbook.another() if number else playbook
        assert request.event("request") == "read"
        assert describe(request.flow.body(body, 100.0)) == "send a"
        assert json.loads(request.flow.payload) == {"a": 1, "model": "tiny"}
        assert request.event("refused") == "send s"
        assert json.loads(request.flow.payload) == {"a": 1, "model": "small"}
        request.event("leaves")
