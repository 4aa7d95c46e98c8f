"""Paths beyond OpenAI's and Anthropic's: engines' own, those that endpoints list, and Azure's."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from multidict import CIMultiDict

from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.engine_features import lacked_by
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.admission import (
    AdmissionPolicy,
    BodyRequired,
    Forward,
    LocalResponse,
    admit_body,
    admit_head,
    large_body,
)
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.model_names import ModelNames
from moorage.proxy.core.routes import IndexedTable, newest_table

KEY = hashlib.sha256(b"mine").hexdigest()
LISTED = ("/v1/images/generations", "/sdapi/v1/txt2img")
NAMES = ModelNames("on-llamacpp", {"gpt": "on-vllm"})
POLICY = AdmissionPolicy(requires_key=True, max_body_bytes=1 << 20, names=NAMES)


def model(name: str, engine: str, *args: str, apis: tuple[str, ...] = ()) -> ModelRoute:
    found = Target(
        SessionId("s"),
        KernelId(name),
        host="127.0.0.1",
        port=1,
        key="key",
        engine=engine,
        lacks=lacked_by(engine, args),
    )
    return ModelRoute(name, 1, targets=(found,), project="vision", apis=apis)


MODELS = (
    model("on-vllm", "vllm"),
    model("pooling", "vllm", "--runner=pooling"),
    model("on-llamacpp", "llamacpp"),
    model("embedding", "llamacpp", "--embeddings"),
    model("ranking", "llamacpp", "--reranking"),
    model("on-own", "custom"),
    model("images", "custom", apis=LISTED),
    ModelRoute("asleep", 1, project="vision", apis=("/own",)),
    ModelRoute("hidden", 1, project="other", apis=("/theirs",)),
)


def table() -> IndexedTable:
    return IndexedTable(RouteTable(1, MODELS, (KeyGrant(KEY, project="vision"),)))


def ask(
    path: str, body: bytes, *, known: IndexedTable | None = None, **headers: str
) -> Forward | ErrorResponse:
    held = known or table()
    fields = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    if not fields.keys() & {"api-key", "Authorization"}:
        fields["Authorization"] = "Bearer mine"

    head = admit_head("POST", path, fields, len(body), table=held, policy=POLICY, unix_now=0.0)
    if isinstance(head, ErrorResponse):
        return head

    assert isinstance(head, BodyRequired)
    large = large_body(head, body)
    while large is not None and large.read_on():
        pass
    return admit_body(head, body, held, large, names=NAMES)


def shown(path: str, name: str, **options: Any) -> str:
    """The model and path that a request reaches, or the refusal's status and code."""
    outcome = ask(path, json.dumps({"model": name}).encode(), **options)
    if isinstance(outcome, Forward):
        return f"{outcome.model} {outcome.path}"
    return f"{outcome.status} {outcome.code}"


@pytest.mark.parametrize(
    ("path", "engine"),
    [
        ("/completion", "llamacpp"),
        ("/infill", "llamacpp"),
        ("/apply-template", "llamacpp"),
        ("/embedding", "llamacpp"),
        ("/v1/chat/completions/batch", "vllm"),
        ("/v1/chat/completions/render", "vllm"),
        ("/v1/completions/render", "vllm"),
        ("/v2/embed", "vllm"),
        ("/cohere/v2/chat", "vllm"),
        ("/generative_scoring", "vllm"),
        ("/inference/v1/generate", "vllm"),
        ("/v1/images/generations", "custom"),
        ("/v1/moderations", "custom"),
    ],
)
def test_a_native_path_reaches_models_of_its_engine(path: str, engine: str) -> None:
    for prefix in ("", "/p/vision"):
        for name, own in (("on-vllm", "vllm"), ("on-llamacpp", "llamacpp"), ("on-own", "custom")):
            reached = own in (engine, "custom")
            expected = f"{name} {path}" if reached else "404 unknown_url"
            assert shown(f"{prefix}{path}", name) == expected


def test_the_refusal_names_the_path_and_the_engine() -> None:
    for name, engine in (("on-vllm", "vllm"), ("images", "custom")):
        refused = ask("/completion", json.dumps({"model": name}).encode())
        assert isinstance(refused, ErrorResponse)
        assert repr(name) in refused.message
        assert f"by {engine}, which has no POST /completion" in refused.message


def test_a_native_request_without_a_model_reaches_the_default() -> None:
    outcome = ask("/completion", b'{"prompt":"x"}')
    assert isinstance(outcome, Forward)
    assert outcome.renamed == b'{"model":"on-llamacpp","prompt":"x"}'


@pytest.mark.parametrize("name", ["on-vllm", "on-llamacpp", "on-own", "images"])
@pytest.mark.parametrize(
    "path",
    [
        "/load_lora_adapter",
        "/v1/load_lora_adapter",
        "/reset_prefix_cache",
        "/sleep",
        "/wake_up",
        "/collective_rpc",
        "/slots",
        "/slots/0",
        "/props",
        "/lora-adapters",
        "/v1/unload_lora_adapter",
        "/update_weights",
    ],
)
def test_administrative_paths_are_unknown(path: str, name: str) -> None:
    assert shown(path, name) == "404 unknown_url"


def test_a_listed_path_reaches_only_models_that_list_it() -> None:
    assert shown("/sdapi/v1/txt2img", "images") == "images /sdapi/v1/txt2img"
    assert shown("/own", "asleep") == "asleep /own"
    for name in ("on-vllm", "on-llamacpp", "on-own", "asleep"):
        assert shown("/sdapi/v1/txt2img", name) == "404 unknown_url"
    for path in ("/v1/chat/completions", "/completion", "/own"):
        assert shown(path, "images") == "404 unknown_url"
    assert shown("/theirs", "hidden") == "404 model_not_found"


def test_a_listed_path_ends_with_the_last_endpoint_that_lists_it() -> None:
    known = table()
    again = RouteTable(2, (model("second", "custom", apis=("/own",)),), (), base=1)
    assert newest_table(known, again) is known
    for generation, removed, status in ((3, "asleep", "second /own"), (4, "second", "404")):
        change = RouteTable(generation, (), (), base=generation - 1, removed_models=(removed,))
        assert newest_table(known, change) is known
        assert shown("/own", "second", known=known).startswith(status)

    assert "/own" not in known.apis


def test_an_unknown_path_may_be_listed_by_routes_on_their_way() -> None:
    for method, status in (("POST", 503), ("GET", 404)):
        head = admit_head(method, "/own", CIMultiDict(), 1, table=None, policy=POLICY, unix_now=0.0)
        assert isinstance(head, ErrorResponse)
        assert head.status == status


def test_a_form_to_a_listed_path() -> None:
    kind = "multipart/form-data; boundary=b"
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nimages\r\n--b--\r\n'
    outcome = ask("/sdapi/v1/txt2img", form, Content_Type=kind)
    assert isinstance(outcome, Forward)
    assert outcome.model == "images"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("deployments/on-vllm/chat/completions", b'{"a":1}', b'{"model":"on-vllm","a":1}'),
        ("deployments/on-vllm/embeddings", b'{"model":"on-vllm"}', None),
        ("deployments/on-vllm/completions", b'{"model":"other"}', b'{"model":"on-vllm"}'),
        ("deployments/on-vllm/responses", b'{"model":null}', b'{"model":"on-vllm"}'),
        ("deployments/gpt/completions", b'{"model":"gpt"}', b'{"model":"on-vllm"}'),
        ("responses", b'{"model":"on-vllm"}', None),
        ("v1/chat/completions", b'{"model":"on-vllm"}', None),
    ],
)
def test_azures_addresses(path: str, body: bytes, expected: bytes | None) -> None:
    outcome = ask(f"/openai/{path}", body, api_key="mine")
    assert isinstance(outcome, Forward)
    rest = path.removeprefix("v1/").split("/")
    api = rest if rest[0] != "deployments" else rest[2:]
    assert (outcome.model, outcome.path) == ("on-vllm", f"/v1/{'/'.join(api)}")
    assert outcome.renamed == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/p/vision/openai/deployments/on-vllm/embeddings", "on-vllm /v1/embeddings"),
        ("/openai/deployments/nothing/embeddings", "404 model_not_found"),
        ("/openai/deployments/hidden/embeddings", "404 model_not_found"),
        ("/openai/deployments//embeddings", "404 unknown_url"),
        ("/openai/deployments/on-vllm/nothing", "404 unknown_url"),
        ("/openai/deployments/on-vllm", "404 unknown_url"),
        ("/openai/deployments/on-vllm/audio/speech", "404 unknown_url"),
        ("/openai/realtime", "404 unknown_url"),
    ],
)
def test_whom_azures_addresses_reach(path: str, expected: str) -> None:
    assert shown(path, "on-vllm") == expected


def test_a_large_body_at_azures_address() -> None:
    outcome = ask("/openai/deployments/on-vllm/completions", b'{"a":"%b"}' % (b"x" * 100_000))
    assert isinstance(outcome, Forward)
    assert outcome.renamed is not None
    assert outcome.renamed.startswith(b'{"model":"on-vllm","a"')


@pytest.mark.parametrize("key", ["other", ""])
def test_azures_key_is_checked(key: str) -> None:
    found = shown("/openai/deployments/on-vllm/completions", "on-vllm", api_key=key)
    assert found == "401 invalid_api_key"


def capabilities() -> dict[str, list[str] | None]:
    answer = admit_head(
        "GET",
        "/v1/models",
        CIMultiDict(Authorization="Bearer mine"),
        None,
        table=table(),
        policy=AdmissionPolicy(requires_key=True, max_body_bytes=1),
        unix_now=0.0,
    )
    assert isinstance(answer, LocalResponse)
    return {found["id"]: found["capabilities"] for found in json.loads(answer.body)["data"]}


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("on-vllm", "/v1/chat/completions /v2/embed /v1/realtime", "/completion"),
        ("pooling", "/v1/embeddings /v1/rerank /tokenize", "/v1/chat/completions /v1/realtime"),
        ("on-llamacpp", "/completion /tokenize", "/v1/embeddings /v1/audio/transcriptions /rerank"),
        ("embedding", "/v1/embeddings /v1/completions", "/v1/rerank"),
        ("ranking", "/v1/rerank /v1/embeddings", "/v1/audio/transcriptions /v1/realtime"),
    ],
)
def test_capabilities_follow_from_the_arguments(name: str, has: str, lacks: str) -> None:
    found = set(capabilities()[name] or ())
    assert found >= set(has.split())
    assert not found & set(lacks.split())


def test_capabilities_are_those_that_the_endpoint_lists() -> None:
    found = capabilities()
    assert found["images"] == sorted(LISTED)
    assert found["asleep"] == ["/own"]
    assert found["on-own"] is None


@pytest.mark.parametrize(
    ("engine", "args", "lacked"),
    [
        ("llamacpp", (), "embed rerank transcribe"),
        ("llamacpp", ("--embedding",), "rerank transcribe"),
        ("llamacpp", ("--rerank", "--mmproj=f"), ""),
        ("vllm", (), ""),
        ("vllm", ("--runner", "generate"), "embed rerank"),
        ("vllm", ("--runner=pooling",), "generate transcribe"),
        ("vllm", ("--runner",), ""),
        ("custom", ("--runner=pooling",), ""),
    ],
)
def test_features_that_arguments_leave_out(engine: str, args: list[str], lacked: str) -> None:
    assert lacked_by(engine, args) == tuple(lacked.split())
