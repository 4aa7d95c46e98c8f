"""Request bodies, JSON or forms, as far as the proxy reads them. Pure."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Final

from moorage.proxy.core import error_response
from moorage.proxy.core.body_model import count_characters, end_of_characters
from moorage.proxy.core.body_reader import BodyReader, TooIntricate
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.forms import text_fields, text_spans
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

# All members that the proxy reads from large bodies.
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
"""Larger bodies are read in slices. Smaller ones are read at once, which takes a few milliseconds
for any content with at most ``WHOLE_ESCAPES``."""
WHOLE_ESCAPES: Final = 1000
"""Escaped letters, each of which may hide a name and takes a step of the reader."""
SLICE_BYTES: Final = 131_072
# A slice has this size only if the body is flat; otherwise, it ends after a piece that took more
# steps.
_PIECE_BYTES = 16_384
_STEPS_IN_SLICE = 200
# Steps for a few tenths of a second. A flat body takes a few hundred, regardless of its size; a
# chat of one megabyte takes thousands.
_MOST_STEPS: Final = 200_000


# Images, audio and files within JSON are base64. Text has no words of this length.
_MEDIA: Final = re.compile(rb"[A-Za-z0-9+/=_-]{4096,}+")


class LargeBody:
    """A JSON body that is read one slice at a time, so that other requests get their turns.

    ``prompt_bytes``: the size of the body without media, nearly.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._reader = BodyReader(_ASKED, _MOST_STEPS)
        self._error: ErrorResponse | None = None
        self.prompt_bytes = len(body)

        # before each piece; a byte order mark is none
        self._characters = [-1 if body.startswith(BOM_UTF8) else 0]

    @property
    def model_span(self) -> tuple[int, int]:
        """The position of the model's name, in bytes of UTF-8."""
        begin, end = self._reader.model_span
        at = self._position_of(begin)
        return at, end_of_characters(self._body, at, end - begin)

    def _position_of(self, character: int) -> int:
        piece = bisect_right(self._characters, character) - 1
        return end_of_characters(
            self._body, piece * _PIECE_BYTES, character - self._characters[piece]
        )

    def read_on(self) -> bool:
        """Read one slice. Returns whether there are more."""
        body = self._body
        at = self._at
        reader = self._reader
        end = min(len(body), at + SLICE_BYTES)
        least_steps = reader.steps_left - _STEPS_IN_SLICE
        try:
            while at < end and reader.steps_left > least_steps:
                piece = body[at : at + _PIECE_BYTES]
                reader.feed(piece)
                self.prompt_bytes -= sum(len(found) for found in _MEDIA.findall(piece))
                self._characters.append(self._characters[-1] + count_characters(piece))
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
        """The result of ``read_json`` for the parts that were read; large values are cut short."""
        reader = self._reader
        if self._error is not None:
            return self._error
        if reader.begin != "{":
            return error_response.not_an_object(_TYPES.get(reader.begin, "a number"))
        repeated = reader.repeated & (_ONCE if names_another else _MODEL)
        return error_response.ambiguous_model() if repeated else reader.members


class LargeForm:
    """A form that is read a slice at a time.

    ``prompt_bytes``: the size of its text fields. ``model_span``: the position of the model's name.
    """

    def __init__(self, body: bytes, content_type: str) -> None:
        self._body = body
        self._spans = text_spans(body, content_type)
        self._fields: list[tuple[str, str]] = []
        self._error: ErrorResponse | None = None
        self.prompt_bytes = 0
        self.model_span = (0, 0)

    def read_on(self) -> bool:
        """Read one slice. Returns whether there are more."""
        body = self._body
        try:
            for span in self._spans:
                if span is None:
                    return True

                name, begin, end = span
                self._fields.append((name, body[begin:end].decode()))
                self.prompt_bytes += end - begin
                if name == "model":
                    self.model_span = begin, end
        except ValueError as error:
            self._error = error_response.malformed_form(str(error))

        return False

    def document(self, *, names_another: bool = False) -> ErrorResponse | Mapping[str, object]:
        """The result of ``read_form``."""
        return self._error or _form_members(self._fields)


LargeReader = LargeBody | LargeForm


def some_members(body: bytes) -> Mapping[str, object] | None:
    """The members that are read from all requests, if the body is certainly a JSON object without
    ambiguous names. Otherwise None, and ``json`` decides."""
    if (found := read_members(body, 0, MEMBERS)) is None or found[1] != len(body):
        return None

    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return None

    return found[0]


def read_json(body: bytes, *, names_another: bool = False) -> ErrorResponse | Mapping[str, object]:
    """Read a JSON body. ``names_another``: the body may also name a previous response."""
    try:
        document = parse(body)
        # The common case is one `model` in quotes, and no escaped letters that could hide another.
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
    return _form_members(fields)


def _form_members(fields: list[tuple[str, str]]) -> ErrorResponse | Mapping[str, object]:
    document: dict[str, object] = dict(fields)
    if sum(name == "model" for name, _ in fields) > 1:
        return error_response.ambiguous_model()
    document["stream"] = document.get("stream") in ("true", "True", "1")
    return document


def parse(body: bytes) -> object:
    """Parse JSON like ``json.loads``, in half the time for typical bodies. Raises
    ``ValueError``."""
    try:
        text = body.decode()
        document, end = scan(text, 0)
    except (StopIteration, UnicodeDecodeError):
        return json.loads(body)
    return document if end == len(text) else json.loads(body)


def _is_ambiguous(body: bytes) -> bool:
    """Whether an object has more than one `model` or `previous_response_id`, so that the replica
    might use a different value than the proxy."""
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
