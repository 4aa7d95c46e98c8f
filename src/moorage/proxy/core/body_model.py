"""Replaces the model in a request's body without changing any other byte. Pure."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from json import detect_encoding
from typing import Final

from moorage.proxy.core.body_reader import BodyReader
from moorage.proxy.core.forms import field_span

_NAMES: Final = frozenset({"model"})
# The bytes of UTF-8 that begin no character.
_CONTINUING: Final = bytes(range(0x80, 0xC0))


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
