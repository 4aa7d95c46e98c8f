"""Forms (multipart/form-data): the short text fields of a body, without copying its files. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from email.message import Message

_MAX_FIELDS = 64
_MAX_VALUE = 4096
# Limits of a part's head, and of a header's parameters, because ``email`` rereads the header for
# each parameter.
_MAX_HEAD = 4096
_MAX_LINES = 16
_MAX_PARAMETERS = 16
# Searched at a time, within ten milliseconds for any content.
_SLICE_BYTES = 2 << 20


def text_fields(body: bytes, content_type: str) -> list[tuple[str, str]]:
    """Names and values of fields of up to 4 KiB that are not files. Raises ``ValueError``."""
    spans = filter(None, text_spans(body, content_type))
    return [(name, body[begin:end].decode()) for name, begin, end in spans]


def field_span(body: bytes, content_type: str, name: str) -> tuple[int, int]:
    """The span of the value of a field found by ``text_fields``."""
    spans = filter(None, text_spans(body, content_type))
    return next((begin, end) for found, begin, end in spans if found == name)


def text_spans(body: bytes, content_type: str) -> Iterator[tuple[str, int, int] | None]:
    """Names and spans of these fields. Between two, None comes as often as the search through a
    large body should let others have their turn."""
    boundary = _parameter("Content-Type", content_type, "boundary")
    if not boundary or not content_type.lower().startswith("multipart/form-data"):
        raise ValueError("Content-Type must be multipart/form-data with a boundary")

    delimiter = b"--" + boundary.encode("latin-1", "replace")
    if not body.startswith(delimiter + b"\r\n"):
        raise ValueError("the form does not begin with its boundary")

    at = len(delimiter) + 2
    for _ in range(_MAX_FIELDS):
        begin = yield from _find(body, b"\r\n\r\n", at)
        end = yield from _find(body, b"\r\n" + delimiter, at)
        if not at <= begin < end:
            raise ValueError("a part of the form is malformed")
        if begin - at > _MAX_HEAD:
            raise ValueError(f"the head of a part exceeds {_MAX_HEAD} bytes")

        disposition = _disposition(body[at:begin])
        name = _parameter("Content-Disposition", disposition, "name")
        is_file = _parameter("Content-Disposition", disposition, "filename") is not None
        # A part without content may end with its head, whose last line break is the delimiter's.
        value = min(begin + 4, end)
        if name and not is_file and end - value <= _MAX_VALUE:
            yield name, value, end

        at = end + 2 + len(delimiter)
        if body.startswith(b"--", at):
            return

        at += 2

    raise ValueError(f"the form has more than {_MAX_FIELDS} parts")


def _find(body: bytes, wanted: bytes, at: int) -> Generator[None, None, int]:
    """``body.find``, with a pause after each slice."""
    while at < len(body):
        found = body.find(wanted, at, at + _SLICE_BYTES + len(wanted) - 1)
        if found >= 0:
            return found

        at += _SLICE_BYTES
        yield None

    return -1


def _disposition(head: bytes) -> str:
    lines = head.decode("latin-1").split("\r\n")
    if len(lines) > _MAX_LINES:
        raise ValueError(f"the head of a part has more than {_MAX_LINES} lines")

    found = [
        value.strip()
        for name, _, value in (line.partition(":") for line in lines)
        if name.strip().lower() == "content-disposition"
    ]
    if len(found) != 1:
        raise ValueError("a part of the form needs one Content-Disposition")

    return found[0]


def _parameter(header: str, value: str, name: str) -> str | None:
    if value.count(";") > _MAX_PARAMETERS:
        raise ValueError(f"{header} has more than {_MAX_PARAMETERS} parameters")
    message = Message()
    message[header] = value
    found = message.get_param(name, header=header)
    return found if isinstance(found, str) else None
