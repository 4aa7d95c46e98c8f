"""Parsing and validation of request bodies, queries, path parameters and idempotency keys.

A large body delays its sender, not the event loop: its bytes and JSON values are limited before it
is parsed, and a body with many values is validated outside the loop. Without these limits, pydantic
took up to 2 s for 1 MiB."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from moorage.common.http.server import read_in_time
from moorage.common.model.errors import BodyTooLarge, InvalidInput, MalformedBody
from moorage.common.model.unique_keys import RepeatedKey, check_unique_keys
from moorage.manager.api.http.dependencies import ApiServices
from moorage.manager.api.http.problems import RequestTimeout, UnsupportedMediaType, invalid_fields

# The response to a request once its headers are sent; its status cannot change after that.
STREAM = web.RequestKey("moorage.stream", web.StreamResponse)

BUDGET_WARNING = "X-Moorage-Budget-Warning"
IDEMPOTENCY_KEY = "Idempotency-Key"
KEY_MAX = 255
# A version, followed by a digest in the answer to GET (``conditional``).
_ETAG = re.compile(r'(?:W/)?"(\d{1,9})(?:\.[0-9a-f]{16})?"')

# Maximum body size, in bytes, on routes that need no key. Their bodies contain an address, a
# certificate request or a password.
OPEN_BODY_BYTES = 16 * 1024
# Maximum number of JSON values in a body.
MAX_VALUES = 20_000
# The same for a body that is validated in the event loop, where validation then takes at most about
# 20 ms.
_INLINE_BYTES = 32 * 1024
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """``max_values``: number of JSON values, including nested values and member names."""

    max_bytes: int
    max_values: int = MAX_VALUES


async def read_body(
    request: web.Request, model: type[M], deps: ApiServices, limits: BodyLimits
) -> M:
    """The JSON body within ``limits``, validated as ``model``.

    Raises ``UnsupportedMediaType``, ``BodyTooLarge``, ``MalformedBody``, ``RequestTimeout`` or
    ``InvalidFields``. After the response, the server drains the rest of a body that is too large,
    so that a client that reads nothing until it has sent everything receives the response instead
    of a connection reset."""
    if (
        request.content_type != "application/json"
        or (request.charset or "utf-8").lower() != "utf-8"
    ):
        given = request.headers.get("Content-Type", "none")
        raise UnsupportedMediaType(
            f"the body must be JSON in UTF-8; its Content-Type is {given!r}",
            next_step="send 'Content-Type: application/json'",
        )

    raw = await _read(request, deps, limits.max_bytes)
    if not raw.strip():
        raise MalformedBody(
            "the body is empty", next_step=f"send a {model.__name__} as a JSON object"
        )

    if len(raw) <= _INLINE_BYTES:
        return _validate(raw, model, limits.max_values)

    # one at a time, because validation does not release the interpreter
    async with deps.validating:
        return await asyncio.to_thread(_validate, raw, model, limits.max_values)


def count_values(raw: bytes, enough: int) -> int:
    """Count the JSON values and names in ``raw``. The result may be too high as long as it does not
    exceed ``enough``."""
    separators = sum(raw.count(character) for character in b",:[{")
    if separators > enough:
        text = _STRING.sub(b"", raw)
        separators = sum(text.count(character) for character in b",:[{")
    return 1 + separators


def _validate(raw: bytes, model: type[M], max_values: int) -> M:
    if count_values(raw, max_values) > max_values:
        raise BodyTooLarge(
            f"the body has more than {max_values} JSON values", next_step="send a smaller body"
        )

    try:
        validated = model.model_validate_json(raw)
        check_unique_keys(raw)
        return validated
    except RepeatedKey as error:
        raise MalformedBody(
            f"the body is ambiguous: {error}", next_step="remove one of the two"
        ) from None
    except ValidationError as error:
        if (
            error.error_count() == 1
            and (first := error.errors(include_url=False)[0])["type"] == "json_invalid"
        ):
            raise MalformedBody(
                f"the body is not valid JSON: {first['ctx']['error']}",
                next_step="correct the JSON at that position",
            ) from None

        raise invalid_fields(error, model, "body") from None


async def _read(request: web.Request, deps: ApiServices, limit: int) -> bytes:
    body = bytearray()
    if not is_within_limit(request, limit):
        raise too_large(limit)

    try:
        async for piece in read_in_time(request.content, deps.limits, waiting=deps.clock.monotonic):
            body += piece
            if len(body) > limit:
                raise too_large(limit)
    except TimeoutError:
        raise RequestTimeout(
            f"the body did not arrive within {deps.limits.body_s:g} s", next_step="send it faster"
        ) from None
    except web.RequestPayloadError as error:
        raise MalformedBody(f"the body could not be read: {error}") from None

    return bytes(body)


def is_within_limit(request: web.Request, max_bytes: int) -> bool:
    """Whether the declared length, if any, is within the limit."""
    return (request.content_length or 0) <= max_bytes


def too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {max_bytes} bytes",
        next_step="send a smaller body, or raise the setting manager.max_body_bytes",
    )


def read_query(request: web.Request, model: type[M]) -> M:
    """Read the query, validated as ``model``; a repeated parameter is a list. Raises
    ``InvalidFields``."""
    given: dict[str, Any] = {}
    for name in request.query:
        values = request.query.getall(name)
        given[name] = values[0] if len(values) == 1 else values

    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid_fields(error, model, "query") from None


def read_path(given: dict[str, str], model: type[M]) -> M:
    """Read the path parameters of a resource to be created, validated as ``model``. Raises
    ``InvalidFields``."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid_fields(error, model, "path") from None


def read_idempotency_key(request: web.Request) -> str | None:
    """Read the Idempotency-Key header, or return None if it is absent. Raises ``InvalidInput``."""
    given = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not given:
        return None

    key = given[0].strip()
    if (
        len(given) > 1
        or not 0 < len(key) <= KEY_MAX
        or not all(" " <= letter <= "~" for letter in key)
    ):
        raise InvalidInput(
            f"{IDEMPOTENCY_KEY} is invalid: send it once, with 1 to {KEY_MAX} printable ASCII "
            "characters",
            next_step="send a new UUID for each new request",
        )

    return key


def read_if_match(request: web.Request, what: str) -> frozenset[int] | None:
    """Read the versions in If-Match. None means that the header is absent or that any version
    matches.

    ``what`` is the kind of resource, for the error. Raises ``InvalidInput``."""
    given = ",".join(request.headers.getall("If-Match", [])).strip()
    if given in ("", "*"):
        return None

    tags = [_ETAG.fullmatch(tag.strip()) for tag in given.split(",")]
    if not all(tags):
        raise InvalidInput(
            f'If-Match is {given[:100]!r}: it must be the ETag of {what}, such as "3"',
            next_step="send the ETag from the response to GET, or omit the header",
        )

    return frozenset(int(tag[1]) for tag in tags if tag is not None)
