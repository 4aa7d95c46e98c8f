"""APIs that the proxy passes through, and the engines that have them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_ALL = frozenset({"vllm", "llamacpp"})
_VLLM, _LLAMACPP, _OWN = frozenset({"vllm"}), frozenset({"llamacpp"}), frozenset[str]()
PROJECTS = "/p/"


@dataclass(frozen=True, slots=True)
class Api:
    """Requests with POST at one path. ``engines``: those that have it, beside ``custom``, which may have
    any. ``in_form``: the model is a field of a form, not of a JSON object."""

    path: str
    engines: frozenset[str] = _ALL
    in_form: bool = False


APIS = {
    api.path: api
    for api in (
        Api("/v1/chat/completions"),
        Api("/v1/completions"),
        Api("/v1/embeddings"),
        Api("/v1/responses"),
        Api("/v1/messages"),
        Api("/v1/messages/count_tokens"),
        Api("/v1/audio/transcriptions", _VLLM, in_form=True),
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
    """The project that an address names, "" if none, and the path within it."""
    if not path.startswith(PROJECTS):
        return "", path
    project, slash, rest = path[len(PROJECTS) :].partition("/")
    return (project, f"/{rest}") if project and slash else ("", path)


def speaks_anthropic(path: str) -> bool:
    """Whether clients of this path expect errors in Anthropic's format."""
    return path.startswith("/v1/messages")
