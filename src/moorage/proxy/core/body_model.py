"""Model in the body of a request: replaces it by another one, and leaves every other byte as it is. Pure."""

from __future__ import annotations

import json

from moorage.proxy.core.forms import field_span
from moorage.proxy.core.json_scan import scan

_SPACE = " \t\r\n"


def with_model(body: bytes, content_type: str, model: str) -> bytes | None:
    """``body`` with another ``model``. It has been admitted, so it is an object or a form with one of them.
    ``content_type``: of a form, else "". None: it is not UTF-8, so nothing is replaced."""
    if content_type:
        begin, end = field_span(body, content_type, "model")
        return body[:begin] + model.encode() + body[end:]
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    begin, end = _span(text)
    return f"{text[:begin]}{json.dumps(model)}{text[end:]}".encode()


def _span(text: str) -> tuple[int, int]:
    """Where the value of ``model`` is in the outermost object."""
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = scan(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, end = scan(text, begin)
        if name == "model":
            return begin, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    raise AssertionError("an admitted body names its model")


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
