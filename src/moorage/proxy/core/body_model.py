"""Replaces the model in a request's body without changing any other byte. Pure."""

from __future__ import annotations

import json
from json import detect_encoding
from typing import Final

from moorage.proxy.core.body_reader import BodyReader
from moorage.proxy.core.forms import field_span

_NAMES: Final = frozenset({"model"})


def with_model(
    body: bytes, content_type: str, model: str, span: tuple[int, int] | None = None
) -> bytes | None:
    """``body`` with another ``model``. The body has been admitted, so it is an object or a form
    with exactly one model. ``content_type``: a form's content type, otherwise empty. ``span``: the
    span of the value in characters, if known. Returns None if the body is not UTF-8, so that
    nothing is replaced."""
    if content_type:
        begin, end = field_span(body, content_type, "model")
        return body[:begin] + model.encode() + body[end:]
    if not detect_encoding(body).startswith("utf-8"):
        return None

    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None

    begin, end = _span(body) if span is None else span
    return f"{text[:begin]}{json.dumps(model)}{text[end:]}".encode()


def _span(body: bytes) -> tuple[int, int]:
    """The span of the outermost object's ``model`` value."""
    reader = BodyReader(_NAMES)
    reader.feed(body)
    return reader.model_span
