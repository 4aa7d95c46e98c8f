"""Lists of models, in OpenAI's and Anthropic's formats. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import parse_qs

from moorage.common.link.messages import ModelRoute
from moorage.proxy.core.apis import apis_of

# models in a page of Anthropic's list
_LIMIT = 20
_LARGEST = 1000


Named = tuple[str, ModelRoute]
"""A model, by its name or by an alias."""


def list_models(models: Iterable[Named], query: str, is_anthropic: bool) -> bytes:
    """JSON with the models in order. ``query``: the request's raw query string, which selects a
    page."""
    if not is_anthropic:
        return json.dumps(
            {"object": "list", "data": [_openai(*named) for named in models]}
        ).encode()
    page, has_more = _page([_anthropic(*named) for named in models], query)
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return json.dumps(
        {"data": page, "has_more": has_more, "first_id": first, "last_id": last}
    ).encode()


def show_model(name: str, route: ModelRoute, is_anthropic: bool) -> bytes:
    return json.dumps((_anthropic if is_anthropic else _openai)(name, route)).encode()


def _openai(name: str, route: ModelRoute) -> dict[str, object]:
    """A model in OpenAI's format. ``capabilities``: paths of the APIs that it answers; null if
    unknown, because nothing serves it, or its engine is custom and its endpoint lists none.
    ``max_model_len``: null if unknown. ``parent``: the model of an adapter, as in vLLM.
    ``alias_of``: the model of an alias."""
    shown = {
        "id": name,
        "object": "model",
        "created": route.created,
        "owned_by": "moorage",
        "max_model_len": route.max_model_len or None,
        "capabilities": apis_of(route),
    }

    if route.endpoint != route.name:
        shown["parent"] = route.endpoint
    if route.name != name:
        shown["alias_of"] = route.name
    return shown


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
