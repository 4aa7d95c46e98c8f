"""APIs that the proxy passes through, and the engines that support them. Pure.

An API that is not listed here is refused, because engines also have paths that change the engine
for everybody (adapters, caches, sleep). Endpoints of custom engines list further paths themselves
(``ModelRoute.apis``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from moorage.common.link.messages import ModelRoute
from moorage.common.model.engine_features import ALWAYS, EMBED, GENERATE, RERANK, TRANSCRIBE
from moorage.proxy.core.headers import bearer_key
from moorage.proxy.core.health import HEALTH

_ALL = frozenset({"vllm", "llamacpp"})
_VLLM = frozenset({"vllm"})
_LLAMACPP = frozenset({"llamacpp"})
_OWN = frozenset[str]()
PROJECTS = "/p/"
MODELS = "/v1/models"
RESPONSES = "/v1/responses"
REALTIME = "/v1/realtime"
# Azure's addresses begin so. Most of them name the model, as a deployment.
_AZURE = "/openai/"
_DEPLOYMENTS = "deployments/"
# Paths after a stored response's id, with their methods and the engines that support them.
_STORED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "": {"GET": _VLLM, "DELETE": _OWN},
    "/cancel": {"POST": _VLLM},
    "/input_items": {"GET": _OWN},
}
_STORED_PATH = re.compile(
    rf"{RESPONSES}/([A-Za-z0-9][A-Za-z0-9_.-]{{0,127}})(/cancel|/input_items|)"
)
_SLASHES = re.compile("/{2,}")
MULTIPART = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Api:
    """An API for POST requests to one path. ``engines``: the engines that support it, in addition
    to ``custom``, which can support any. ``in_form``: the model is a field of a form, not of a JSON
    object. ``feature``: what an engine must have been started for (``Target.lacks``)."""

    path: str
    engines: frozenset[str] = _ALL
    in_form: bool = False
    feature: str = GENERATE


APIS = {
    api.path: api
    for api in (
        Api("/v1/chat/completions"),
        Api("/v1/chat/completions/batch", _VLLM),
        Api("/v1/chat/completions/input_tokens", _LLAMACPP),
        Api("/v1/chat/completions/render", _VLLM),
        Api("/v1/completions"),
        Api("/v1/completions/render", _VLLM),
        Api("/v1/embeddings", feature=EMBED),
        Api("/v1/responses"),
        Api("/v1/responses/input_tokens", _LLAMACPP),
        Api("/v1/messages"),
        Api("/v1/messages/count_tokens"),
        Api("/v1/audio/transcriptions", in_form=True, feature=TRANSCRIBE),
        Api("/v1/audio/translations", _VLLM, in_form=True, feature=TRANSCRIBE),
        Api("/v1/audio/speech", _OWN),
        Api("/v1/images/generations", _OWN),
        Api("/v1/images/edits", _OWN, in_form=True),
        Api("/v1/images/variations", _OWN, in_form=True),
        Api("/v1/moderations", _OWN),
        Api("/v1/rerank", feature=RERANK),
        Api("/rerank", feature=RERANK),
        Api("/v2/rerank", _VLLM, feature=RERANK),
        Api("/v1/reranking", _LLAMACPP, feature=RERANK),
        Api("/reranking", _LLAMACPP, feature=RERANK),
        Api("/v1/score", _VLLM, feature=RERANK),
        Api("/score", _VLLM, feature=RERANK),
        Api("/pooling", _VLLM, feature=EMBED),
        Api("/classify", _VLLM, feature=EMBED),
        Api("/v2/embed", _VLLM, feature=EMBED),
        Api("/embedding", _LLAMACPP, feature=EMBED),
        Api("/tokenize", feature=ALWAYS),
        Api("/detokenize", feature=ALWAYS),
        # Other names and native forms of generation.
        Api("/completion", _LLAMACPP),
        Api("/infill", _LLAMACPP),
        Api("/apply-template", _LLAMACPP),
        Api("/cohere/v2/chat", _VLLM),
        Api("/generative_scoring", _VLLM),
        Api("/inference/v1/generate", _VLLM),
    )
}


def split_project(path: str) -> tuple[str, str]:
    """The project in an address, empty if there is none, and the path within it."""
    if not path.startswith(PROJECTS):
        return "", path
    project, slash, rest = path[len(PROJECTS) :].partition("/")
    return (project, f"/{rest}") if project and slash else ("", path)


def split_azure(path: str) -> tuple[str, str]:
    """The model that an address of Azure's clients names as its deployment, empty for others, and
    the path of the same API below /v1. Other paths stay as they are."""
    if not path.startswith(_AZURE):
        return "", path

    rest = path.removeprefix(_AZURE)
    if rest.startswith(_DEPLOYMENTS):
        named = rest.removeprefix(_DEPLOYMENTS)
        for api in APIS:
            model = named.removesuffix(api.removeprefix("/v1"))
            if api.startswith("/v1/") and named != model != "":
                return model, api
        return "", path

    same = f"/v1/{rest.removeprefix('v1/')}"
    return "", same if same != REALTIME and methods_of(same) else path


def methods_of(path: str, declared: Container[str] = ()) -> Sequence[str]:
    """The methods of a path; empty if the path does not exist. ``declared``: the paths that
    endpoints list themselves."""
    if path in APIS or path in declared:
        return ("POST",)
    if path == MODELS or (path.startswith(f"{MODELS}/") and path != f"{MODELS}/"):
        return ("GET", "HEAD")
    if path == REALTIME:
        return ("GET",)
    if path in HEALTH:
        return ("GET", "HEAD")
    stored = _STORED_PATH.fullmatch(path)
    return tuple(_STORED[stored[2]]) if stored is not None else ()


def similar_path(path: str) -> str:
    """The path that was probably meant by an unknown one, because /v1 is missing or repeated, or a
    slash is; empty if there is none."""
    path = _SLASHES.sub("/", path).rstrip("/")
    while path.startswith("/v1/v1/"):
        path = path.removeprefix("/v1")

    candidates = (path, f"/v1{path}", path.removeprefix("/v1"))
    return next((candidate for candidate in candidates if methods_of(candidate)), "")


def stored_id(path: str) -> str:
    """The id of the stored response in a path; empty if there is none."""
    stored = None if path in APIS else _STORED_PATH.fullmatch(path)
    return stored[1] if stored is not None else ""


def engines_of(method: str, path: str) -> frozenset[str]:
    """The engines that support an API, in addition to ``custom``."""
    if (api := APIS.get(path)) is not None:
        return api.engines
    if path == REALTIME:
        return _VLLM
    stored = _STORED_PATH.fullmatch(path)
    return _STORED[stored[2]][method] if stored is not None else _OWN


def apis_of(route: ModelRoute) -> list[str] | None:
    """Paths of the APIs that all replicas of a model answer, as far as their arguments show; None
    if unknown."""
    if route.apis:
        return sorted(route.apis)
    engine = route.targets[0].engine if route.targets else ""
    if engine not in _ALL:
        return None

    lacked = {feature for target in route.targets for feature in target.lacks}
    found = [
        path for path, api in APIS.items() if engine in api.engines and api.feature not in lacked
    ]
    is_realtime = engine in engines_of("GET", REALTIME) and TRANSCRIBE not in lacked
    return [*found, REALTIME] if is_realtime else found


def is_form(path: str, content_type: str) -> bool:
    """Whether a body is read as a form. Of paths that endpoints list themselves, the type of the
    body decides."""
    if (api := APIS.get(path)) is not None:
        return api.in_form
    return content_type.lstrip().lower().startswith(MULTIPART)


def is_realtime(path: str) -> bool:
    """Whether requests to this path become WebSockets. ``path`` can include a project."""
    return split_project(path)[1] == REALTIME


def speaks_anthropic(path: str, fields: Mapping[str, str]) -> bool:
    """Whether a client expects the proxy's answers in Anthropic's format. ``fields``: its
    headers."""
    if path.startswith("/v1/messages") or "Anthropic-Version" in fields:
        return True
    return path.startswith(MODELS) and "X-Api-Key" in fields and not bearer_key(fields)
