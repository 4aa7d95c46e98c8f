"""Parsing and validation of request bodies, queries, path parameters and idempotency keys."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from moorage.common.http.server import read_in_time
from moorage.common.model.errors import BodyTooLarge, InvalidInput, MalformedBody
from moorage.manager.api.dependencies import ApiServices
from moorage.manager.api.problems import RequestTimeout, UnsupportedMediaType, invalid_fields

BUDGET_WARNING = "X-Moorage-Budget-Warning"
IDEMPOTENCY_KEY = "Idempotency-Key"
KEY_MAX = 255
_ETAG = re.compile(r'(?:W/)?"(\d{1,9})"')

M = TypeVar("M", bound=BaseModel)


async def read_body(request: web.Request, model: type[M], deps: ApiServices, max_bytes: int) -> M:
    """The JSON body of at most ``max_bytes``, validated as ``model``.

    Raises ``UnsupportedMediaType``, ``BodyTooLarge``, ``MalformedBody``, ``RequestTimeout`` or
    ``InvalidFields``. After the
    response, the server drains the rest of a body that is too large. A client that sends everything before it
    reads then receives the response instead of a connection reset.
    """
    if request.content_type != "application/json" or (request.charset or "utf-8").lower() != "utf-8":
        given = request.headers.get("Content-Type", "none")
        raise UnsupportedMediaType(
            f"the body must be JSON in UTF-8; its Content-Type is {given!r}",
            next_step="send 'Content-Type: application/json'",
        )
    raw = await _read(request, deps, max_bytes)
    if not raw.strip():
        raise MalformedBody("the body is empty", next_step=f"send a {model.__name__} as a JSON object")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise MalformedBody(
                f"the body is not valid JSON: {first['ctx']['error']}",
                next_step="correct the JSON at that position",
            ) from None
        raise invalid_fields(error, model, "body") from None


async def _read(request: web.Request, deps: ApiServices, limit: int) -> bytes:
    body = bytearray()
    if not is_within_limit(request, limit):
        raise _too_large(limit)
    try:
        async for piece in read_in_time(request.content, deps.limits, waiting=deps.clock.monotonic):
            body += piece
            if len(body) > limit:
                raise _too_large(limit)
    except TimeoutError:
        raise RequestTimeout(
            f"the body did not arrive within {deps.limits.body_s:g} s", next_step="send it faster"
        ) from None
    except web.RequestPayloadError as error:
        raise MalformedBody(f"the body could not be read: {error}") from None
    return bytes(body)


def is_within_limit(request: web.Request, max_bytes: int) -> bool:
    """Whether the announced length, if any, is within the limit."""
    return (request.content_length or 0) <= max_bytes


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {max_bytes} bytes",
        next_step="send a smaller body, or raise the setting manager.max_body_bytes",
    )


def read_query(request: web.Request, model: type[M]) -> M:
    """The query, validated as ``model``; a repeated parameter is a list. Raises ``InvalidFields``."""
    given: dict[str, Any] = {}
    for name in request.query:
        values = request.query.getall(name)
        given[name] = values[0] if len(values) == 1 else values
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid_fields(error, model, "query") from None


def read_path(given: dict[str, str], model: type[M]) -> M:
    """Path parameters of a resource to create, validated as ``model``. Raises ``InvalidFields``."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid_fields(error, model, "path") from None


def read_idempotency_key(request: web.Request) -> str | None:
    """The value of the Idempotency-Key header, or None. Raises ``InvalidInput``."""
    given = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not given:
        return None
    key = given[0].strip()
    if len(given) > 1 or not 0 < len(key) <= KEY_MAX or not all(" " <= letter <= "~" for letter in key):
        raise InvalidInput(
            f"{IDEMPOTENCY_KEY} is invalid: send it once, with 1 to {KEY_MAX} printable ASCII characters",
            next_step="send a new UUID for each new request",
        )
    return key


def read_if_match(request: web.Request, what: str) -> frozenset[int] | None:
    """The versions in If-Match; None: the header is absent, or any version matches. ``what``: the kind of the
    resource, for the error. Raises ``InvalidInput``."""
    given = ",".join(request.headers.getall("If-Match", [])).strip()
    if given in ("", "*"):
        return None
    tags = [_ETAG.fullmatch(one.strip()) for one in given.split(",")]
    if not all(tags):
        raise InvalidInput(
            f'If-Match is {given[:100]!r}: it must be the ETag of {what}, such as "3"',
            next_step="send the ETag of the answer to GET, or leave the header out",
        )
    return frozenset(int(tag[1]) for tag in tags if tag is not None)
