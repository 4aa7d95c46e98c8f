"""LoRA adapters of endpoints: the models that they provide, and the arguments that load them into a
replica. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from moorage.common.model.serving import Adapter

_OPTION = "--lora-modules"


def adapter_model(endpoint: str, adapter: str) -> str:
    """Name that clients send as `model`."""
    return f"{endpoint}:{adapter}"


def adapter_args(endpoint: str, adapters: Sequence[Adapter]) -> list[str]:
    """Arguments for vLLM. They come last, because vLLM honours only the last ``--lora-modules``."""
    if not adapters:
        return []

    given = [
        {
            "name": adapter_model(endpoint, adapter.name),
            "path": adapter.source,
            "base_model_name": endpoint,
        }
        for adapter in adapters
    ]
    return ["--enable-lora", _OPTION, *(json.dumps(adapter) for adapter in given)]


def adapters_in(args: Iterable[str]) -> tuple[str, ...]:
    """Models that a replica with these arguments serves as adapters of its endpoint."""
    words = list(args)
    if _OPTION not in words:
        return ()

    start = len(words) - words[::-1].index(_OPTION)
    found = []
    for word in words[start:]:
        if not word.startswith("{"):
            break

        try:
            found.append(str(json.loads(word)["name"]))
        except (ValueError, KeyError, TypeError):
            break

    return tuple(found)
