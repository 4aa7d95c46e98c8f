"""Metrics of inference engines: the load from the ``/metrics`` route of vLLM and llama.cpp, and the
context length from ``/v1/models``. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

PATH = "/metrics"
MODELS = "/v1/models"
_RUNNING = ("vllm:num_requests_running", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "llamacpp:requests_deferred")
# From 0 to 1. llama.cpp no longer has this metric.
_KV_CACHE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "llamacpp:kv_cache_usage_ratio",
)
# Counters that increase while the engine works on requests.
_PROGRESS = (
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    *("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
)
_NAMES = frozenset((*_RUNNING, *_WAITING, *_KV_CACHE, *_PROGRESS))


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Metrics of an engine. ``kv_cache``: None if the engine does not report it. ``progress``:
    increases while the engine works."""

    running: int
    waiting: int
    kv_cache: float | None
    progress: float


def parse_metrics(text: str) -> EngineMetrics | None:
    """Parse Prometheus text. If one server runs several engines, their values are added up, except
    for the KV cache, where the fullest one is used. None means that the engine is unknown."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _NAMES:
            try:
                found.setdefault(name, []).append(float(line.rpartition("}")[2].split()[-1]))
            except (ValueError, IndexError):
                continue

    def values(names: tuple[str, ...]) -> list[float]:
        return [value for name in names for value in found.get(name, ())]

    running = values(_RUNNING)
    waiting = values(_WAITING)
    kv_cache = values(_KV_CACHE)
    if not running or not waiting:
        return None

    full = min(1.0, max(0.0, *kv_cache)) if kv_cache else None
    return EngineMetrics(_count(sum(running)), _count(sum(waiting)), full, sum(values(_PROGRESS)))


def _count(value: float) -> int:
    return int(min(max(value, 0), 1e6)) if value == value else 0


def parse_max_model_len(body: bytes) -> int | None:
    """The maximum number of tokens of a prompt and its answer together, from a list of models. None
    means that the list does not contain it."""
    try:
        card = json.loads(body)["data"][0]
        found = card["max_model_len"] if "max_model_len" in card else card["meta"]["n_ctx"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    is_size = isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 31
    return found if is_size else None
