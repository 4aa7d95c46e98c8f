"""Whether a request is let in, and as what: first by its head, then by its body. Pure.

The order is fixed: path (404), method (405), a table to judge by (503), key (401), size (413),
encoding (415), then the body's JSON (400) and its model (404), and at last a ready replica (503).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.common.link.messages import ModelRoute
from moorage.proxy.core import error_response
from moorage.proxy.core.error_response import Refuse
from moorage.proxy.core.routes import Table

MODELS = "/v1/models"
FORWARDED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/rerank",
    "/v1/score",
    "/tokenize",
    "/detokenize",
)
_FORWARDED = frozenset(FORWARDED)
_SERVED = (f"GET {MODELS}", *(f"POST {path}" for path in FORWARDED))


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say about admission."""

    needs_key: bool
    max_body_bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The proxy answers by itself: 200 with this JSON."""

    body: bytes


@dataclass(frozen=True, slots=True)
class NeedBody:
    """The head is fine; read the body and call ``admit_body``."""

    path: str


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the client's exact bytes to a replica of ``model`` at ``path``."""

    model: str
    path: str
    stream: bool


def admit_head(
    method: str,
    path: str,
    headers: Mapping[str, str],
    size: int | None,
    table: Table | None,
    rules: Rules,
    unix_now: float,
) -> Refuse | Answer | NeedBody:
    """Judge a request before its body is read.

    ``headers`` looks names up in any case. ``size`` is the announced body in bytes, None if unknown.
    """
    model_name = path[len(MODELS) + 1 :] if path.startswith(MODELS + "/") else ""
    asks_models = path == MODELS or bool(model_name)
    if not asks_models and path not in _FORWARDED:
        return error_response.unknown_url(method, path, _SERVED)
    allowed = ("GET", "HEAD") if asks_models else ("POST",)
    if method not in allowed:
        return error_response.wrong_method(method, path, ", ".join(allowed))
    if table is None:
        return error_response.no_table()
    if rules.needs_key and (refused := _check_key(headers.get("Authorization"), table, unix_now)):
        return refused
    if asks_models:
        return _show_model(table, model_name) if model_name else _list_models(table)
    if size is not None and size > rules.max_body_bytes:
        return error_response.body_too_large(rules.max_body_bytes)
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        return error_response.encoded_body(encoding)
    return NeedBody(path)


def admit_body(path: str, body: bytes, table: Table) -> Refuse | Forward:
    """Find the model that ``body`` asks for. Nothing of it is changed or kept."""
    try:
        asked = json.loads(body)
    except RecursionError:
        return error_response.malformed_json("it is nested too deeply")
    except ValueError as error:
        return error_response.malformed_json(str(error) if body else "it is empty")
    if not isinstance(asked, dict):
        return error_response.not_an_object(_kind(asked))
    name = asked.get("model")
    if not isinstance(name, str) or not name:
        return error_response.no_model(_kind(name) if "model" in asked else None)
    route = table.model(name)
    if route is None:
        return error_response.unknown_model(name, table.models)
    return Forward(name, path, asked.get("stream") is True)


def admit_model(name: str, table: Table) -> Refuse | None:
    """Whether a replica of the model is ready: a newer table may say otherwise of one that has none."""
    route = table.model(name)
    if route is None:
        return error_response.unknown_model(name, table.models)
    return error_response.loading(name) if all(target.draining for target in route.targets) else None


def _check_key(header: str | None, table: Table, unix_now: float) -> Refuse | None:
    scheme, _, secret = (header or "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        return error_response.no_key(given=False)
    # Looked up by digest: the time it takes says nothing about a secret that is nearly right.
    digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
    return None if table.grants(digest, unix_now) else error_response.no_key(given=True)


def _entry(route: ModelRoute) -> dict[str, object]:
    return {"id": route.name, "object": "model", "created": route.created, "owned_by": "moorage"}


def _list_models(table: Table) -> Answer:
    entries = [_entry(route) for route in table.models.values()]
    return Answer(json.dumps({"object": "list", "data": entries}).encode())


def _show_model(table: Table, name: str) -> Answer | Refuse:
    route = table.model(name)
    if route is None:
        return error_response.unknown_model(name, table.models)
    return Answer(json.dumps(_entry(route)).encode())


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case "":
            return "an empty string"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
