"""Features that an engine has or lacks depending on its arguments, and the paths that custom
engines may list. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

ALWAYS: Final = ""
GENERATE: Final = "generate"
EMBED: Final = "embed"
RERANK: Final = "rerank"
TRANSCRIBE: Final = "transcribe"

_LLAMACPP: Final = {
    EMBED: frozenset({"--embedding", "--embeddings", "--rerank", "--reranking"}),
    RERANK: frozenset({"--rerank", "--reranking"}),
    TRANSCRIBE: frozenset({"--mmproj", "-mm"}),
}
_RUNNER: Final = "--runner"
_POOLS: Final = (EMBED, RERANK)
_GENERATES: Final = (GENERATE, TRANSCRIBE)

_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,8}")
# Paths of the proxy itself, some of which have parameters.
_OWN: Final = ("/p/", "/s/", "/openai/", "/v1/models/", "/v1/responses/")
_TAKEN: Final = frozenset(
    {"/v1/models", "/v1/realtime", "/health", "/healthz", "/livez", "/readyz", "/ping", "/metrics"}
)
# Words in paths by which engines change what all their clients get.
_ADMINISTRATIVE: Final = frozenset(
    {
        "abort_requests",
        "collective_rpc",
        "flush_cache",
        "is_sleeping",
        "load_lora_adapter",
        "lora-adapters",
        "pause",
        "props",
        "release_memory_occupation",
        "reset_encoder_cache",
        "reset_mm_cache",
        "reset_prefix_cache",
        "resume",
        "resume_memory_occupation",
        "scale_elastic_ep",
        "server_info",
        "shutdown",
        "sleep",
        "slots",
        "start_profile",
        "stop_profile",
        "unload_lora_adapter",
        "update_weights",
        "update_weights_from_disk",
        "wake_up",
    }
)


def lacked_by(engine: str, args: Sequence[str]) -> tuple[str, ...]:
    """The features that an engine with these arguments certainly lacks. vLLM chooses its runner by
    the model unless an argument does."""
    words = [word for arg in args for word in arg.split("=", 1)]
    if engine == "llamacpp":
        return tuple(feature for feature, options in _LLAMACPP.items() if options.isdisjoint(words))
    if engine == "vllm" and _RUNNER in words:
        runner = words[words.index(_RUNNER) + 1 :][:1]
        return {"pooling": _GENERATES, "generate": _POOLS}.get("".join(runner), ())
    return ()


def path_problem(path: str) -> str:
    """What is wrong with a path that an endpoint lists; empty if nothing is."""
    if not _PATH.fullmatch(path) or len(path) > 256:
        return "a path has one to eight parts of letters, digits and ._~-, each after a slash"
    if path in _TAKEN or f"{path}/".startswith(_OWN):
        return "the proxy answers it itself"
    if word := next((word for word in path.split("/") if word in _ADMINISTRATIVE), ""):
        return f"{word!r} is an administrative path, which changes the engine for all its clients"
    return ""
