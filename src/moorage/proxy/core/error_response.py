"""Every error that the proxy itself answers, in OpenAI's shape. Pure.

The engine's own errors are not here: they pass through unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

INVALID = "invalid_request_error"
UNAVAILABLE = "service_unavailable_error"
SERVER = "server_error"
_LOADING = "model_loading"

# How long a client should wait before it asks again.
LOADING_RETRY_S = 5
NO_TABLE_RETRY_S = 2


@dataclass(frozen=True, slots=True)
class Refuse:
    """An answer with OpenAI's error object. ``close``: the connection cannot be used further."""

    status: int
    type: str
    code: str | None
    message: str
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    close: bool = False

    def body(self) -> bytes:
        return error_json(self.message, self.type, self.code, self.param)


def error_json(message: str, kind: str, code: str | None, param: str | None = None) -> bytes:
    """``{"error": {...}}`` with all four keys, as the clients' libraries expect."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def _shown(name: str) -> str:
    return name if len(name) <= 128 else name[:128] + "…"


def unknown_url(method: str, path: str, served: Iterable[str]) -> Refuse:
    return Refuse(
        404,
        INVALID,
        "unknown_url",
        f"Nothing is served at {method} {_shown(path)}. Served: {', '.join(served)}.",
    )


def wrong_method(method: str, path: str, allowed: str) -> Refuse:
    message = f"{path} does not take {_shown(method)}. Allowed: {allowed}."
    return Refuse(405, INVALID, "method_not_allowed", message, headers={"Allow": allowed})


def no_table() -> Refuse:
    return Refuse(
        503,
        UNAVAILABLE,
        "no_routes_yet",
        "This proxy has not reached the manager yet, so it knows no models and no keys. Try again shortly; "
        "if it lasts, look at the proxy's log and its setting proxy.manager.",
        headers={"Retry-After": str(NO_TABLE_RETRY_S)},
    )


def no_key(given: bool) -> Refuse:
    message = (
        "This API key is not valid: it is unknown, revoked or expired."
        if given
        else "No API key was given. Send one as `Authorization: Bearer KEY`."
    )
    return Refuse(401, INVALID, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})


def body_too_large(limit: int) -> Refuse:
    return Refuse(
        413,
        INVALID,
        "request_too_large",
        f"The body is larger than the {limit} bytes allowed here. Send less, or raise the setting "
        "proxy.max_body_bytes.",
        close=True,
    )


def encoded_body(encoding: str) -> Refuse:
    message = f"Content-Encoding {_shown(encoding)!r} is not accepted in requests. Send plain JSON."
    return Refuse(415, INVALID, "unsupported_content_encoding", message)


def slow_body(seconds: float) -> Refuse:
    message = f"The body did not arrive within {seconds:g} s."
    return Refuse(408, INVALID, "request_timeout", message, close=True)


def broken_body() -> Refuse:
    return Refuse(400, INVALID, None, "The body ended early or is not framed as its headers say.", close=True)


def malformed_json(detail: str) -> Refuse:
    return Refuse(400, INVALID, None, f"The body is not valid JSON: {_shown(detail)}.")


def not_an_object(found: str) -> Refuse:
    message = f'The body must be a JSON object like {{"model": …}}, but it is {found}.'
    return Refuse(400, INVALID, None, message)


def no_model(found: str | None) -> Refuse:
    message = (
        "The body has no `model`. GET /v1/models lists the models."
        if found is None
        else f"`model` must be a non-empty string, but it is {found}."
    )
    return Refuse(400, INVALID, None, message, param="model")


def unknown_model(name: str, known: Iterable[str]) -> Refuse:
    some = list(islice(known, 6))
    listed = ", ".join(some[:5]) + (", …" if len(some) > 5 else "") if some else "none yet"
    return Refuse(
        404,
        INVALID,
        "model_not_found",
        f"The model {_shown(name)!r} does not exist. Known models: {listed}.",
        param="model",
    )


def loading(name: str) -> Refuse:
    return Refuse(
        503,
        UNAVAILABLE,
        _LOADING,
        f"The model {name!r} has no replica that is ready now. Try again shortly; "
        f"`moorage describe {name}` shows why.",
        headers={"Retry-After": str(LOADING_RETRY_S)},
    )


def may_pass(refused: Refuse | None) -> bool:
    """Whether a newer table may answer otherwise: a replica that has just become ready."""
    return refused is not None and refused.code == _LOADING


def upstream_error(detail: str) -> Refuse:
    return Refuse(502, SERVER, "upstream_error", detail)


def upstream_timeout(seconds: float) -> Refuse:
    message = f"The replica sent nothing for {seconds:g} s (proxy.read_idle_timeout_s)."
    return Refuse(504, SERVER, "upstream_timeout", message)


def internal_error(request_id: str) -> Refuse:
    message = f"The proxy failed at this request. Its log has the cause under request id {request_id}."
    return Refuse(500, SERVER, "internal_error", message)


def malformed_http(status: int, detail: str) -> Refuse:
    """A request that is not HTTP as we accept it: 400, 414 (URL) or 431 (headers)."""
    return Refuse(status, INVALID, None, f"The HTTP request is not accepted: {_shown(detail)}.", close=True)
