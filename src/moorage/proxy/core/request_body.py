"""Bodies of requests: JSON or a form, as far as the proxy reads them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moorage.proxy.core import error_response
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.forms import text_fields
from moorage.proxy.core.json_scan import scan
from moorage.proxy.core.member_scan import read_members

MEMBERS: Final = {
    name.encode(): name
    for name in (
        "model", "stream", "priority", "n", "max_tokens", "max_completion_tokens", "max_output_tokens",
        "previous_response_id",
    )
}  # fmt: skip


def some_members(body: bytes) -> Mapping[str, object] | None:
    """What all requests are asked for, of a body that is certain to be a JSON object in which no name is
    ambiguous. None: ``json`` decides."""
    if (found := read_members(body, 0, MEMBERS)) is None or found[1] != len(body):
        return None
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return None
    return found[0]


def read_json(body: bytes, *, names_another: bool = False) -> ErrorResponse | Mapping[str, object]:
    """``names_another``: it may name a previous response, too."""
    try:
        document = parse(body)
        # One `model` between quotes, and no escaped letters in which another could hide: the common case.
        is_suspect = body.count(b'"model"') != 1 or b"\\u006" in body
        if names_another and not is_suspect:
            is_suspect = body.count(b'"previous_response_id"') > 1 or b"\\u00" in body
        is_ambiguous = is_suspect and _is_ambiguous(body)
    except RecursionError:
        return error_response.malformed_json("it is nested too deeply")
    except ValueError as error:
        return error_response.malformed_json(str(error) if body else "it is empty")
    if not isinstance(document, dict):
        return error_response.not_an_object(json_type(document))
    return error_response.ambiguous_model() if is_ambiguous else document


def read_form(body: bytes, content_type: str) -> ErrorResponse | Mapping[str, object]:
    try:
        fields = text_fields(body, content_type)
    except ValueError as error:
        return error_response.malformed_form(str(error))
    document: dict[str, object] = dict(fields)
    if sum(name == "model" for name, _ in fields) > 1:
        return error_response.ambiguous_model()
    document["stream"] = document.get("stream") in ("true", "True", "1")
    return document


def parse(body: bytes) -> object:
    """``json.loads``, in half the time for what nearly everybody sends. Raises ``ValueError``."""
    try:
        text = body.decode()
        document, end = scan(text, 0)
    except (StopIteration, UnicodeDecodeError):
        return json.loads(body)
    return document if end == len(text) else json.loads(body)


class _Ambiguous(dict[str, object]):
    """A JSON object with more than one `model`, or more than one `previous_response_id`."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    is_ambiguous = names.count("model") > 1 or names.count("previous_response_id") > 1
    return (_Ambiguous if is_ambiguous else dict)(pairs)


def _is_ambiguous(body: bytes) -> bool:
    """Whether the outermost object is: the replica might take another value than the proxy."""
    return isinstance(json.loads(body, object_pairs_hook=_object), _Ambiguous)


def json_type(value: object) -> str:
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
