"""Lists of models, in OpenAI's and Anthropic's formats. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs

from moorage.common.link.messages import ModelRoute
from moorage.common.link.proxy_messages import EngineRequests
from moorage.common.model.ids import KernelId
from moorage.proxy.core.apis import apis_of

# models in a page of Anthropic's list
_LIMIT = 20
_LARGEST = 1000


Named = tuple[str, ModelRoute]
"""A model, by its name or by an alias."""


Loads = Mapping[KernelId, EngineRequests]


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """The format of lists. ``loads``: the newest loads of engines."""

    is_anthropic: bool
    loads: Loads = field(default_factory=dict)


def list_models(models: Iterable[Named], query: str, shape: ModelFormat) -> bytes:
    """JSON with the models in order. ``query``: the request's raw query string, which selects a
    page."""
    if not shape.is_anthropic:
        found = [_openai(*named, loads=shape.loads) for named in models]
        return json.dumps({"object": "list", "data": found}).encode()

    page, has_more = _page([_anthropic(*named) for named in models], query)
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return json.dumps(
        {"data": page, "has_more": has_more, "first_id": first, "last_id": last}
    ).encode()


def show_model(name: str, route: ModelRoute, shape: ModelFormat) -> bytes:
    if shape.is_anthropic:
        return json.dumps(_anthropic(name, route)).encode()
    return json.dumps(_openai(name, route, loads=shape.loads)).encode()


def _openai(name: str, route: ModelRoute, *, loads: Loads) -> dict[str, object]:
    """A model in OpenAI's format. ``capabilities``: paths of the APIs that it answers; null if
    unknown, because nothing serves it, or its engine is custom and its endpoint lists none.
    ``max_model_len``: null if unknown. ``parent``: the model of an adapter, as in vLLM.
    ``alias_of``: the model of an alias. ``metrics``: of its replicas; null if unknown."""
    shown = {
        "id": name,
        "object": "model",
        "created": route.created,
        "owned_by": "moorage",
        "max_model_len": route.max_model_len or None,
        "capabilities": apis_of(route),
        "metrics": _metrics(route, loads),
    }

    if route.endpoint != route.name:
        shown["parent"] = route.endpoint
    if route.name != name:
        shown["alias_of"] = route.name
    return shown


def _metrics(route: ModelRoute, loads: Loads) -> dict[str, object] | None:
    """Requests that the replicas run and that wait in them, and the mean use of their KV caches,
    from 0 to 1. None if no replica has reported."""
    found = [load for target in route.targets if (load := loads.get(target.kernel_id)) is not None]
    if not found:
        return None

    caches = [load.kv_cache for load in found if load.kv_cache is not None]
    return {
        "running": sum(load.running for load in found),
        "waiting": sum(load.waiting for load in found),
        "kv_cache": round(sum(caches) / len(caches) / 1000, 3) if caches else None,
    }


def _anthropic(name: str, route: ModelRoute) -> dict[str, object]:
    created_at = datetime.fromtimestamp(route.created, UTC).isoformat().replace("+00:00", "Z")
    return {
        "type": "model",
        "id": name,
        "display_name": route.name,
        "created_at": created_at,
        "lifecycle": "active",
        "max_input_tokens": route.max_model_len or None,
    }


def _page(models: list[dict[str, object]], query: str) -> tuple[list[dict[str, object]], bool]:
    """The models selected by ``limit``, ``after_id`` and ``before_id``, and whether there are
    more."""
    fields = {name: values[-1] for name, values in parse_qs(query).items()}
    digits = fields.get("limit", "")
    size = min(max(1, int(digits)), _LARGEST) if digits.isdecimal() and len(digits) < 9 else _LIMIT
    names = [model["id"] for model in models]
    if (before := fields.get("before_id")) in names:
        end = names.index(before)
        return models[max(0, end - size) : end], end > size

    after = fields.get("after_id")
    start = names.index(after) + 1 if after in names else 0
    return models[start : start + size], start + size < len(models)
