"""Error responses from the proxy itself, in OpenAI's format. Pure.

Errors from the engine are not included, because they pass through unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from moorage.proxy.core.body_limit import OF_ENDPOINT, OF_KEY, BodyLimit
from moorage.proxy.core.retry import Failure

INVALID = "invalid_request_error"
UNAVAILABLE = "service_unavailable_error"
SERVER = "server_error"
_LOADING = "model_loading"

# Values of Retry-After, in seconds.
LOADING_RETRY_S = 5
NO_TABLE_RETRY_S = 2
STALE_RETRY_S = 30


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A response with OpenAI's error object. ``close``: the connection must not be reused."""

    status: int
    type: str
    code: str | None
    message: str
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    close: bool = False

    def body(self, *, anthropic: bool = False) -> bytes:
        """The body in OpenAI's or Anthropic's format."""
        if anthropic:
            return anthropic_json(self.message, _ANTHROPIC_TYPES.get(self.status, "api_error"))
        return error_json(self.message, self.type, self.code, self.param)


def error_json(message: str, kind: str, code: str | None, param: str | None = None) -> bytes:
    """The object ``{"error": {...}}`` with all four keys, as client libraries expect."""
    return json.dumps(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}
    ).encode()


_ANTHROPIC_TYPES = {
    **dict.fromkeys((400, 405, 408, 414, 415, 431), INVALID),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_json(message: str, kind: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def _shorten(text: str) -> str:
    return text if len(text) <= 128 else text[:128] + "…"


def unknown_url(method: str, path: str, meant: str) -> ErrorResponse:
    """The error for an unknown address. ``meant``: the path that was probably meant, empty if
    unknown."""
    hint = (
        f"Did you mean {_shorten(meant)}?"
        if meant
        else "GET /v1/models lists the models, with the paths that they answer as `capabilities`."
    )
    return ErrorResponse(
        404,
        INVALID,
        "unknown_url",
        f"Unknown URL: {method} {_shorten(path)}. {hint} The base URL of OpenAI's clients ends in "
        "/v1, and that of Anthropic's clients does not.",
    )


def method_not_allowed(method: str, path: str, allowed: str) -> ErrorResponse:
    message = f"{path} does not support {_shorten(method)}. Allowed: {allowed}."
    return ErrorResponse(405, INVALID, "method_not_allowed", message, headers={"Allow": allowed})


def needs_websocket(path: str) -> ErrorResponse:
    message = f"{path} needs a WebSocket: send Connection: Upgrade and Upgrade: websocket."
    return ErrorResponse(426, INVALID, "needs_websocket", message, headers={"Upgrade": "websocket"})


def no_model_in_query(path: str, found: int) -> ErrorResponse:
    message = (
        f"The address has {found or 'no'} `model`. Ask for {path}?model=NAME; GET "
        "/v1/models lists them."
    )
    return ErrorResponse(400, INVALID, None, message, param="model")


def no_table() -> ErrorResponse:
    return ErrorResponse(
        503,
        UNAVAILABLE,
        "no_routes_yet",
        "This proxy has not received routes from the manager yet, so it knows no models and no "
        "keys. Retry "
        "shortly. If this persists, check the proxy's log and its setting proxy.manager.",
        headers={"Retry-After": str(NO_TABLE_RETRY_S)},
    )


def draining() -> ErrorResponse:
    return ErrorResponse(
        503,
        UNAVAILABLE,
        "draining",
        "This proxy is stopping: it completes running requests. Use another proxy.",
        headers={"Retry-After": str(NO_TABLE_RETRY_S)},
    )


def stale_credentials(age_s: float) -> ErrorResponse:
    return ErrorResponse(
        503,
        UNAVAILABLE,
        "credentials_stale",
        f"This proxy has had no contact with its manager for {age_s / 60:.0f} min, so it does not "
        "know which credentials were revoked, and accepts none (proxy.credentials_max_age_s). "
        "Retry later, "
        "or use "
        "another proxy.",
        headers={"Retry-After": str(STALE_RETRY_S)},
    )


def invalid_key(given: bool, authorization: str = "") -> ErrorResponse:
    """The error for an unknown key, or for none. ``authorization``: the header that holds no key.
    It is not shown, because it may be the key itself."""
    if given:
        message = "Invalid API key: it is unknown, revoked or expired."
    else:
        scheme, _, credentials = authorization.strip().partition(" ")
        problem = ""
        if scheme and scheme.lower() != "bearer":
            problem = (
                " (Authorization has another scheme)"
                if credentials
                else (" (Authorization has no scheme)")
            )
        message = f"No API key was provided{problem}. Send one as `Authorization: Bearer KEY`."

    return ErrorResponse(
        401, INVALID, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"}
    )


def other_project(name: str) -> ErrorResponse:
    message = (
        f"This API key does not belong to the project {_shorten(name)!r}. Use a key of the "
        "project, or the address without it."
    )
    return ErrorResponse(403, "permission_error", "project_not_allowed", message)


def body_too_large(
    limit: BodyLimit, *, is_expanded: bool = False, close: bool = True
) -> ErrorResponse:
    """``is_expanded``: the body was compressed, and exceeds the limit without its compression.
    ``close``: the rest of it was not read."""
    body = "The decompressed body" if is_expanded else "The body"
    if limit.source == OF_KEY:
        owner = "this API key"
        setting = "`max_body_bytes` of the key (`moorage keys set NAME --max-body SIZE`)"
    elif limit.source == OF_ENDPOINT:
        owner = f"the endpoint {_shorten(limit.endpoint)!r}"
        setting = "`routing.max_body_bytes` of the endpoint (`moorage endpoints set`)"
    else:
        owner = "this proxy"
        setting = "the setting proxy.max_body_bytes"

    message = (
        f"{body} exceeds the limit of {owner}, {limit.size} bytes. Send less, or raise {setting}."
    )
    return ErrorResponse(413, INVALID, "request_too_large", message, close=close)


def too_intricate() -> ErrorResponse:
    message = "The body has too many small nested values. Send fewer of them in one request."
    return ErrorResponse(413, INVALID, "request_too_large", message)


def body_too_dense(ratio: int) -> ErrorResponse:
    message = (
        f"The body expands to more than {ratio} times its compressed size, so it was not read. Send "
        "it uncompressed."
    )
    return ErrorResponse(413, INVALID, "request_too_large", message)


def too_many_members(most: int) -> ErrorResponse:
    message = f"The compressed body has more than {most} gzip members. Compress it as one."
    return ErrorResponse(413, INVALID, "request_too_large", message)


def malformed_coding(coding: str, detail: str) -> ErrorResponse:
    message = f"The body is not valid {coding} data: {_shorten(detail)}."
    return ErrorResponse(400, INVALID, "invalid_content_encoding", message)


def unsupported_encoding(encoding: str) -> ErrorResponse:
    message = (
        f"Content-Encoding {_shorten(encoding)!r} is not supported. Allowed: gzip, deflate or "
        "identity, one of them. Compress the body with gzip, or send it uncompressed."
    )
    # RFC 9110 §12.5.3: in this response, the header lists the codings that requests may have.
    headers = {"Accept-Encoding": "gzip, deflate, identity"}
    return ErrorResponse(415, INVALID, "unsupported_content_encoding", message, headers=headers)


def body_timeout(seconds: float) -> ErrorResponse:
    message = f"The body did not arrive within {seconds:g} s."
    return ErrorResponse(408, INVALID, "request_timeout", message, close=True)


def incomplete_body() -> ErrorResponse:
    message = "The body ended early, or its framing does not match its headers."
    return ErrorResponse(400, INVALID, None, message, close=True)


def malformed_json(detail: str) -> ErrorResponse:
    return ErrorResponse(400, INVALID, None, f"The body is not valid JSON: {_shorten(detail)}.")


def malformed_form(detail: str) -> ErrorResponse:
    return ErrorResponse(400, INVALID, None, f"The body is not a form: {detail}.")


def not_in_engine(path: str, name: str, engine: str) -> ErrorResponse:
    """``engine``: empty if unknown."""
    served = f"is served by {engine}, which" if engine else "is not served now, and its endpoint"
    hint = " `routing.apis` of its endpoint lists its paths." if engine in ("", "custom") else ""
    message = f"The model {name!r} {served} has no {path}.{hint}"
    return ErrorResponse(404, INVALID, "unknown_url", message)


def unknown_response(response_id: str) -> ErrorResponse:
    message = (
        f"No response {_shorten(response_id)!r} of your project is known. Stored responses are "
        "lost when their replica ends. Those of engines other than vLLM are known only to the proxy "
        "that created them, for 24 hours."
    )
    return ErrorResponse(404, INVALID, "response_not_found", message, param="response_id")


def response_gone(response_id: str) -> ErrorResponse:
    message = (
        f"The replica that kept the response {_shorten(response_id)!r} has ended, and the "
        "response with it."
    )
    return ErrorResponse(404, INVALID, "response_not_found", message, param="response_id")


_PREVIOUS = "previous_response_id"
_SEND_ALL = "Send the whole conversation as `input` instead."


def unknown_previous(response_id: str) -> ErrorResponse:
    message = f"{unknown_response(response_id).message} {_SEND_ALL}"
    return ErrorResponse(400, INVALID, "previous_response_not_found", message, param=_PREVIOUS)


def previous_gone(response_id: str) -> ErrorResponse:
    message = f"{response_gone(response_id).message} {_SEND_ALL}"
    return ErrorResponse(400, INVALID, "previous_response_not_found", message, param=_PREVIOUS)


def previous_of_other_model(response_id: str, model: str) -> ErrorResponse:
    message = (
        f"The response {_shorten(response_id)!r} was made by the model {model!r}, which "
        f"keeps it. {_SEND_ALL}"
    )
    return ErrorResponse(400, INVALID, "previous_response_not_found", message, param=_PREVIOUS)


def not_an_object(found: str) -> ErrorResponse:
    message = f'The body must be a JSON object like {{"model": …}}, but it is {found}.'
    return ErrorResponse(400, INVALID, None, message)


def invalid_model(found: str | None) -> ErrorResponse:
    """The error for an invalid model. ``found``: the JSON type of the ``model`` value, None if it
    is missing."""
    message = (
        "The body has no `model`. GET /v1/models lists the models."
        if found is None
        else f"`model` must be a non-empty string, but it is {found}."
    )
    return ErrorResponse(400, INVALID, None, message, param="model")


def ambiguous_model() -> ErrorResponse:
    message = "The body has more than one `model` or `previous_response_id`. Send one."
    return ErrorResponse(400, INVALID, None, message, param="model")


def unknown_model(name: str, known: Iterable[str]) -> ErrorResponse:
    return _model_not_found(f"The model {_shorten(name)!r} does not exist.", known)


def dead_alias(name: str, known: Iterable[str]) -> ErrorResponse:
    """The error for an alias. It does not reveal whether its model exists."""
    message = (
        f"{_shorten(name)!r} is an alias (proxy.model_aliases) of a model that does not exist, or "
        "that this key may not use."
    )
    return _model_not_found(message, known)


def no_default_model(known: Iterable[str]) -> ErrorResponse:
    message = (
        "The body has no `model`, and the default one (proxy.default_model) does not exist, or "
        "this key may not use it."
    )
    return _model_not_found(message, known)


def _model_not_found(message: str, known: Iterable[str]) -> ErrorResponse:
    some = list(islice(known, 6))
    listed = ", ".join(some[:5]) + (", …" if len(some) > 5 else "") if some else "none yet"
    return ErrorResponse(
        404, INVALID, "model_not_found", f"{message} Known models: {listed}.", param="model"
    )


def model_not_settable() -> ErrorResponse:
    message = "The proxy sets the model of this request, for which its body must be UTF-8."
    return ErrorResponse(400, INVALID, None, message, param="model")


def model_loading(name: str, expected_s: int = 0) -> ErrorResponse:
    """The error for a loading model. ``expected_s``: expected time until a replica is ready; 0 if
    unknown."""
    return ErrorResponse(
        503,
        UNAVAILABLE,
        _LOADING,
        f"The model {name!r} has no ready replica. Retry shortly; `moorage describe {name}` shows "
        "its state.",
        headers={"Retry-After": str(expected_s or LOADING_RETRY_S)},
    )


def too_many_held(name: str, expected_s: int) -> ErrorResponse:
    return ErrorResponse(
        503,
        UNAVAILABLE,
        "server_is_overloaded",
        f"The model {name!r} has no ready replica, and the number of waiting requests has reached "
        "this proxy's limit (proxy.max_held_requests, proxy.max_held_bytes). Retry later.",
        headers={"Retry-After": str(expected_s or LOADING_RETRY_S)},
    )


def no_body_memory() -> ErrorResponse:
    return ErrorResponse(
        503,
        UNAVAILABLE,
        "server_is_overloaded",
        "The bodies of the requests at this proxy have reached their total limit "
        "(proxy.max_total_body_bytes). Retry later.",
        headers={"Retry-After": str(LOADING_RETRY_S)},
        close=True,
    )


def no_room(name: str) -> ErrorResponse:
    return ErrorResponse(
        503,
        UNAVAILABLE,
        "server_is_overloaded",
        f"The replicas of the model {name!r} have no room for more requests now. Retry later.",
        headers={"Retry-After": str(LOADING_RETRY_S)},
    )


def may_resolve(error: ErrorResponse | None) -> bool:
    """Return whether a newer table may admit the request: a replica may have just become ready."""
    return error is not None and error.code == _LOADING


def upstream_error(message: str) -> ErrorResponse:
    return ErrorResponse(502, SERVER, "upstream_error", message)


def upstream_timeout(seconds: float) -> ErrorResponse:
    message = f"The replica sent no data for {seconds:g} s (proxy.read_idle_timeout_s)."
    return ErrorResponse(504, SERVER, "upstream_timeout", message)


def key_rejected() -> ErrorResponse:
    return upstream_error(
        "The replica rejected the proxy's own key. Your key is not the cause. "
        "Retry, or contact the administrator."
    )


def provider_refused() -> ErrorResponse:
    return upstream_error(
        "The outside provider that is this model's fallback refused the proxy's request. "
        "Your key is "
        "not the cause. Retry, or contact the owner of the endpoint."
    )


def unreachable(connecting: bool, tried: int) -> ErrorResponse:
    """The error if no replica has responded. ``connecting``: the last one could not even be
    reached."""
    problem = "could not be reached" if connecting else "closed the connection before it responded"
    return upstream_error(
        f"The replica {problem} ({tried} tried). Retry; a lost replica is replaced."
    )


def upstream_failure(failure: Failure, read_idle_timeout_s: float, tried: int) -> ErrorResponse:
    """The error for the client after the last failed attempt. ``tried``: the number of replicas."""
    if failure is Failure.IDLE_TIMEOUT:
        return upstream_timeout(read_idle_timeout_s)
    if failure is Failure.KEY_REJECTED:
        return key_rejected()
    if failure is Failure.REFUSED:
        return provider_refused()

    if failure is Failure.ENGINE_DEAD:
        return upstream_error(
            f"The replica's engine has died ({tried} tried). Retry; it is replaced."
        )

    return unreachable(failure is Failure.CONNECT, tried)


def internal_error(request_id: str) -> ErrorResponse:
    message = f"Internal error of the proxy. Its log shows the cause under request id {request_id}."
    return ErrorResponse(500, SERVER, "internal_error", message)


def malformed_http(status: int, detail: str) -> ErrorResponse:
    """The error for a request that violates HTTP or our limits: 400, 414 (URL) or 431 (headers)."""
    return ErrorResponse(
        status, INVALID, None, f"Malformed HTTP request: {detail[:400]}.", close=True
    )
