"""Errors as RFC 9457 problem JSON, worded for whoever has to act on them."""

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

PROBLEM_JSON = "application/problem+json"

_SHOWN_CHARS = 100


class InvalidFields(InvalidInput):
    """Some fields are not valid."""

    def __init__(self, message: str, errors: list[dict[str, Any]], *, next_step: str) -> None:
        super().__init__(message, next_step=next_step)
        self.errors = errors


class UnsupportedMediaType(MoorageError):
    """The body is not of a type that is understood here."""

    code, http = "unsupported-media-type", 415


class MethodNotAllowed(MoorageError):
    """This method is not allowed here."""

    code, http = "method-not-allowed", 405


class InternalError(MoorageError):
    """Something went wrong inside the manager."""

    code, http = "internal-error", 500


def problem_response(error: MoorageError, headers: Mapping[str, str] | None = None) -> web.Response:
    """``error`` as an answer, with ``Retry-After`` where waiting helps."""
    problem = Problem(
        title=HTTPStatus(error.http).phrase,
        status=error.http,
        detail=error.message,
        code=error.code,
        next_step=error.next_step,
        errors=error.errors if isinstance(error, InvalidFields) else [],
    )
    response = web.Response(
        status=error.http, body=problem.model_dump_json().encode(), content_type=PROBLEM_JSON, headers=headers
    )
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def invalid_fields(error: ValidationError, model: type[BaseModel], where: str) -> InvalidFields:
    """A failed validation as one entry per bad field. ``where``: body, query or path."""
    errors = [_bad_field(detail, model, where) for detail in error.errors(include_url=False)]
    told = "; ".join(f"{entry['field']}: {entry['message']}" for entry in errors)
    return InvalidFields(
        f"the {where} is not valid: {told}",
        errors,
        next_step="correct what is listed under errors; /openapi.json says what is allowed",
    )


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """ ", did you mean 'this'?" if something allowed looks like what was given, else nothing."""
    close = difflib.get_close_matches(str(given), list(allowed), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""


def _bad_field(detail: ErrorDetails, model: type[BaseModel], where: str) -> dict[str, Any]:
    kind, place = detail["type"], detail["loc"]
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "missing":
        return {"field": _path(place, where), "in": where, "found": None, "message": "it is required"}
    if kind == "extra_forbidden":
        known = _fields_at(model, place[:-1])
        message = "there is no such field" + did_you_mean(place[-1], known)
    elif kind in ("literal_error", "enum"):
        allowed = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        message = f"allowed is {', '.join(allowed)}" + did_you_mean(detail["input"], allowed)
    found = _shown(detail["input"])
    return {"field": _path(place, where), "in": where, "found": found, "message": message}


def _path(place: tuple[int | str, ...], where: str) -> str:
    """``("args", 2)`` as ``args[2]``; a rule over the whole thing is about ``where``."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return path.removeprefix(".") or where


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The fields of ``model``, or of the model that it has at ``place``."""
    for part in place:
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, UnionType):
        return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
