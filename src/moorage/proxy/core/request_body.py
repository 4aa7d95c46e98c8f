"""Bodies of requests: JSON or a form, as far as the proxy reads them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moorage.proxy.core import error_response
from moorage.proxy.core.body_reader import BodyReader, TooIntricate
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.forms import text_fields
from moorage.proxy.core.json_scan import scan
from moorage.proxy.core.member_scan import read_members

MEMBERS: Final = {
    name.encode(): name
    for name in (
        "model",
        "stream",
        "priority",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "previous_response_id",
    )
}

# Of large bodies, all that anything here asks for.
_ASKED: Final = frozenset(MEMBERS.values()) | {
    "background",
    "input",
    "instructions",
    "messages",
    "prompt",
    "store",
    "system",
}
_ONCE: Final = frozenset({"model", "previous_response_id"})
_TOO_DEEP: Final = "it is nested too deeply"
_TYPES: Final = {
    "{": "an object",
    "[": "an array",
    '"': "a string",
    "t": "a boolean",
    "f": "a boolean",
    "n": "null",
}
_MODEL: Final = frozenset({"model"})
WHOLE_BYTES: Final = 65_536
"""A larger body is read in slices, a smaller one at once: that takes a few milliseconds, whatever
it is."""
SLICE_BYTES: Final = 131_072
# A slice is as large as that only where the body is flat: it ends after a piece if it took more
# steps.
_PIECE_BYTES = 16_384
_STEPS_IN_SLICE = 200
# Some tenths of a second. What is flat takes some hundreds, however large; a chat of a megabyte,
# thousands.
_MOST_STEPS: Final = 200_000


class LargeBody:
    """A body of JSON that is read a slice at a time, so that others get their turns."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._reader = BodyReader(_ASKED, _MOST_STEPS)
        self._error: ErrorResponse | None = None

    @property
    def model_span(self) -> tuple[int, int]:
        return self._reader.model_span

    def read_on(self) -> bool:
        """Read one slice. Returns whether there are more."""
        body = self._body
        at = self._at
        reader = self._reader
        end = min(len(body), at + SLICE_BYTES)
        least_steps = reader.steps_left - _STEPS_IN_SLICE
        try:
            while at < end and reader.steps_left > least_steps:
                reader.feed(body[at : at + _PIECE_BYTES])
                at += _PIECE_BYTES

            self._at = at
            if at >= len(body):
                reader.end()
        except RecursionError:
            self._error = error_response.malformed_json(_TOO_DEEP)
        except TooIntricate:
            self._error = error_response.too_intricate()
        except ValueError as error:
            self._error = error_response.malformed_json(str(error))

        return at < len(body) and self._error is None

    def document(self, *, names_another: bool = False) -> ErrorResponse | Mapping[str, object]:
        """As ``read_json``, of what was read: large values are cut short."""
        reader = self._reader
        if self._error is not None:
            return self._error
        if reader.begin != "{":
            return error_response.not_an_object(_TYPES.get(reader.begin, "a number"))
        repeated = reader.repeated & (_ONCE if names_another else _MODEL)
        return error_response.ambiguous_model() if repeated else reader.members


def some_members(body: bytes) -> Mapping[str, object] | None:
    """What all requests are asked for, of a body that is certain to be a JSON object in which no
    name is ambiguous. None: ``json`` decides."""
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
        # One `model` between quotes, and no escaped letters in which another could hide: the common
        # case.
        is_suspect = body.count(b'"model"') != 1 or b"\\u006" in body
        if names_another and not is_suspect:
            is_suspect = body.count(b'"previous_response_id"') > 1 or b"\\u00" in body

        is_ambiguous = is_suspect and _is_ambiguous(body)
    except RecursionError:
        return error_response.malformed_json(_TOO_DEEP)
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


def _is_ambiguous(body: bytes) -> bool:
    """Whether an object has more than one `model`, or more than one `previous_response_id`: the
    replica might take another value than the proxy."""
    reader = BodyReader(_ONCE)
    for at in range(0, len(body), _PIECE_BYTES // 8):
        reader.feed(body[at : at + _PIECE_BYTES // 8])
        if reader.repeated:
            return True
    reader.end()
    return bool(reader.repeated)


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
