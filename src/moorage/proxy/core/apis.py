"""APIs that the proxy passes through, and the engines that support them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Api:
    """An API for POST requests to one path. ``engines``: the engines that support it, in addition
    to ``custom``, which can support any. ``in_form``: the model is a field of a form, not of a JSON
    object."""

    path: str
    engines: frozenset[str] = _ALL
    in_form: bool = False


APIS = {
    api.path: api
    for api in (
        Api("/v1/chat/completions"),
        Api("/v1/chat/completions/input_tokens", _LLAMACPP),
        Api("/v1/completions"),
        Api("/v1/embeddings"),
        Api("/v1/responses"),
        Api("/v1/responses/input_tokens", _LLAMACPP),
        Api("/v1/messages"),
        Api("/v1/messages/count_tokens"),
        Api("/v1/audio/transcriptions", in_form=True),
        Api("/v1/audio/translations", _VLLM, in_form=True),
        Api("/v1/audio/speech", _OWN),
        Api("/v1/rerank"),
        Api("/rerank"),
        Api("/v2/rerank", _VLLM),
        Api("/v1/reranking", _LLAMACPP),
        Api("/v1/score", _VLLM),
        Api("/score", _VLLM),
        Api("/pooling", _VLLM),
        Api("/classify", _VLLM),
        Api("/tokenize"),
        Api("/detokenize"),
    )
}


def split_project(path: str) -> tuple[str, str]:
    """The project in an address, empty if there is none, and the path within it."""
    if not path.startswith(PROJECTS):
        return "", path
    project, slash, rest = path[len(PROJECTS) :].partition("/")
    return (project, f"/{rest}") if project and slash else ("", path)


def methods_of(path: str) -> Sequence[str]:
    """The methods of a path; empty if the path does not exist."""
    if path in APIS:
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


def apis_of(engine: str) -> list[str] | None:
    """Paths of an engine's APIs; None if unknown."""
    if engine not in _ALL:
        return None
    return [path for path in (*APIS, REALTIME) if engine in engines_of("POST", path)]


def is_realtime(path: str) -> bool:
    """Whether requests to this path become WebSockets. ``path`` can include a project."""
    return split_project(path)[1] == REALTIME


def speaks_anthropic(path: str, fields: Mapping[str, str]) -> bool:
    """Whether a client expects the proxy's answers in Anthropic's format. ``fields``: its
    headers."""
    if path.startswith("/v1/messages") or "Anthropic-Version" in fields:
        return True
    return path.startswith(MODELS) and "X-Api-Key" in fields and not bearer_key(fields)
