"""LoRA adapters of endpoints: the models that they are, and how a replica is told to load them.
Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from moorage.common.model.serving import Adapter

_OPTION = "--lora-modules"


def adapter_model(endpoint: str, adapter: str) -> str:
    """What clients send as `model`."""
    return f"{endpoint}:{adapter}"


def adapter_args(endpoint: str, adapters: Sequence[Adapter]) -> list[str]:
    """Arguments of vLLM. They come last: of two ``--lora-modules``, the last one counts."""
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
    return ["--enable-lora", _OPTION, *(json.dumps(one) for one in given)]


def adapters_in(args: Iterable[str]) -> tuple[str, ...]:
    """The models that a replica with these arguments serves as adapters of its endpoint."""
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
