"""Sets the model in a request's body without changing any other byte. Pure."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from json import detect_encoding
from typing import Final

from moorage.proxy.core.body_reader import BodyReader
from moorage.proxy.core.forms import field_span

_NAMES: Final = frozenset({"model"})
# The bytes of UTF-8 that begin no character.
_CONTINUING: Final = bytes(range(0x80, 0xC0))
_SPACES: Final = re.compile(rb"[ \t\r\n]*")
_CLOSING: Final = ord("}")


class Renamed:
    """A body whose model was set by the proxy. ``span``: the position of the model's name in bytes,
    None if unknown."""

    __slots__ = ("body", "span")

    def __init__(self, body: bytes, begin: int = 0, size: int = 0) -> None:
        self.body = body
        self.span = (begin, begin + size) if size else None


def with_model(
    body: bytes, content_type: str, model: str, span: tuple[int, int] | None = None
) -> bytes | None:
    """``body`` with another ``model``. The body has been admitted, so it is an object or a form
    with exactly one model. ``content_type``: a form's content type, otherwise empty. ``span``: the
    span of the value in bytes, if known. Returns None if the body is not UTF-8, so that nothing is
    replaced."""
    if content_type:
        begin, end = field_span(body, content_type, "model") if span is None else span
        return spliced(body, begin, end, model.encode())
    if not detect_encoding(body).startswith("utf-8"):
        return None

    if span is None:
        try:
            body.decode()
        except UnicodeDecodeError:
            return None

        span = _span(body)

    return spliced(body, *span, json.dumps(model).encode()).removeprefix(BOM_UTF8)


def spliced(body: bytes, begin: int, end: int, new: bytes) -> bytes:
    """``body`` with ``new`` in place of the bytes from ``begin`` to ``end``; copied once."""
    view = memoryview(body)
    return b"".join((view[:begin], new, view[end:]))


def with_model_added(body: bytes, content_type: str, model: str) -> Renamed | None:
    """``body``, an object or a form without a model, with ``model`` as its first member or field.
    Returns None if the body is not UTF-8."""
    if content_type:
        delimiter = body[: body.index(b"\r\n") + 2]
        head = b'%bContent-Disposition: form-data; name="model"\r\n\r\n' % delimiter
        value = model.encode()
        return Renamed(spliced(body, 0, 0, b"%b%b\r\n" % (head, value)), len(head), len(value))

    if not detect_encoding(body).startswith("utf-8"):
        return None

    begin = body.index(b"{") + 1
    spaces = _SPACES.match(body, begin)
    assert spaces is not None
    is_empty = body[spaces.end()] == _CLOSING
    value = json.dumps(model).encode()
    member = b'"model":%b%b' % (value, b"" if is_empty else b",")
    return Renamed(spliced(body, begin, begin, member), begin + len(b'"model":'), len(value))


def renamed(
    body: bytes, content_type: str, model: str, span: tuple[int, int] | None
) -> Renamed | None:
    """The result of ``with_model``, with its span if ``span`` is known."""
    changed = with_model(body, content_type, model, span)
    if changed is None:
        return None
    if span is None:
        return Renamed(changed)

    is_marked = not content_type and body.startswith(BOM_UTF8)
    size = len(changed) - len(body) + span[1] - span[0] + (len(BOM_UTF8) if is_marked else 0)
    return Renamed(changed, span[0] - (len(BOM_UTF8) if is_marked else 0), size)


def _span(body: bytes) -> tuple[int, int]:
    """The span of the outermost object's ``model`` value, in bytes."""
    reader = BodyReader(_NAMES)
    reader.feed(body)
    begin, end = reader.model_span
    first = len(BOM_UTF8) if body.startswith(BOM_UTF8) else 0
    at = end_of_characters(body, first, begin)
    return at, end_of_characters(body, at, end - begin)


def count_characters(piece: bytes) -> int:
    """The characters of UTF-8 that begin in ``piece``."""
    return len(piece) if piece.isascii() else len(piece.translate(None, _CONTINUING))


def end_of_characters(body: bytes, begin: int, characters: int) -> int:
    """The position in ``body`` after so many characters of UTF-8 from ``begin``."""
    at = begin
    while characters > 0 and at < len(body):
        piece = body[at : at + characters]
        characters -= count_characters(piece)
        at += len(piece)

    while at < len(body) and body[at] in _CONTINUING:
        at += 1
    return at
