"""Problem responses (RFC 9457): error codes, field errors and next steps."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import UnionType
from typing import Any, Union, get_args, get_origin

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from moorage.common.model.errors import InvalidInput, MoorageError
from moorage.common.views.resources import Problem
from moorage.manager.api.http.problem_types import type_of

PROBLEM_JSON = "application/problem+json"

_SHOWN_CHARS = 100
# A response names at most this many invalid fields. Above the second number, pydantic would take
# longer to list them than an event loop can afford.
_SHOWN_ERRORS = 20
_LISTED_ERRORS = 1_000
# Longer names cannot be misspellings of our field names, so they are not compared with them.
_COMPARED_CHARS = 64


class InvalidFields(InvalidInput):
    """Some fields of the request are invalid."""

    def __init__(self, message: str, errors: list[dict[str, Any]], *, next_step: str) -> None:
        super().__init__(message, next_step=next_step)
        self.errors = errors


class UnsupportedMediaType(MoorageError):
    """The media type of the body is not supported."""

    code = "unsupported-media-type"
    http = 415


class MethodNotAllowed(MoorageError):
    """The resource does not support this method."""

    code = "method-not-allowed"
    http = 405


class MalformedRequest(MoorageError):
    """The request violates HTTP, or a limit of this server."""

    code = "malformed-request"
    http = 400


class LengthRequired(MoorageError):
    """The request does not state the length of its body."""

    code = "length-required"
    http = 411


class RequestTimeout(MoorageError):
    """The body did not arrive in time."""

    code = "request-timeout"
    http = 408


class InternalError(MoorageError):
    """The manager failed to process the request."""

    code = "internal-error"
    http = 500


def problem_of(error: MoorageError, status: int) -> Problem:
    """The document that describes ``error``."""
    return Problem(
        type=type_of(error.code),
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        code=error.code,
        next_step=error.next_step,
        errors=_errors_of(error),
    )


def _errors_of(error: MoorageError) -> list[dict[str, Any]]:
    if not isinstance(error, InvalidInput) or not error.field:
        return error.errors
    return [{"field": error.field, "in": error.where, "found": None, "message": error.message}]


def problem_response(
    error: MoorageError, headers: Mapping[str, str] | None = None, status: int | None = None
) -> web.Response:
    """The response for ``error``, with ``Retry-After`` if the error is temporary. ``status``
    replaces the error's status."""
    status = status or error.http
    problem = problem_of(error, status)
    response = web.Response(
        status=status,
        body=problem.model_dump_json().encode(),
        content_type=PROBLEM_JSON,
        headers=headers,
    )
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)

    return response


def invalid_fields(error: ValidationError, model: type[BaseModel], where: str) -> InvalidFields:
    """The error for a failed validation, with an entry for each of the first invalid fields.
    ``where`` is body, query or path."""
    count = error.error_count()
    next_step = "correct the fields listed under errors; /openapi.json describes the allowed values"

    if count > _LISTED_ERRORS:
        return InvalidFields(
            f"the {where} is invalid in more than {_LISTED_ERRORS} places",
            [],
            next_step="see /openapi.json, which describes the allowed fields and values",
        )

    shown = error.errors(include_url=False)[:_SHOWN_ERRORS]
    errors = [_field_error(detail, model, where) for detail in shown]
    summary = "; ".join(f"{entry['field']}: {entry['message']}" for entry in errors)
    more = f"; and {count - _SHOWN_ERRORS} more" if count > _SHOWN_ERRORS else ""

    return InvalidFields(f"the {where} is invalid: {summary}{more}", errors, next_step=next_step)


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Suggest an allowed value: ", did you mean 'name'?" if one is similar to ``given``, otherwise
    ""."""
    if len(str(given)) > _COMPARED_CHARS:
        return ""
    close = difflib.get_close_matches(str(given), list(allowed), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""


def _field_error(detail: ErrorDetails, model: type[BaseModel], where: str) -> dict[str, Any]:
    kind = detail["type"]
    location = detail["loc"]
    message = detail["msg"].removeprefix("Value error, ")

    if kind == "missing":
        return {
            "field": _path(location, where),
            "in": where,
            "found": None,
            "message": "is required",
        }

    if kind == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        message = "unknown field" + did_you_mean(location[-1], known)
    elif kind in ("literal_error", "enum"):
        allowed = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        message = f"must be one of {', '.join(allowed)}" + did_you_mean(detail["input"], allowed)

    found = _shown(detail["input"])
    return {"field": _path(location, where), "in": where, "found": found, "message": message}


def _path(location: tuple[int | str, ...], where: str) -> str:
    """Write ``("args", 2)`` as ``args[2]``; an error in the whole object is reported for
    ``where``."""
    parts = (part if isinstance(part, int) else _shortened(part) for part in location)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".") or where


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


def _shown(value: object) -> str:
    """The beginning of ``value`` as JSON."""
    if isinstance(value, str):
        return _shortened(json.dumps(value, ensure_ascii=False))
    text = ""
    for piece in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
        text += piece
        if len(text) > _SHOWN_CHARS:
            return f"{text[:_SHOWN_CHARS]}…"
    return text


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The field names of ``model``, or of the nested model at ``location``."""
    for part in location:
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, UnionType):
        return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
    return (
        annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    )
