"""Member scan: reads a few members of a JSON object and skips the others. Pure.

It is meant to be compiled. It then takes a fraction of the time of ``json``, partly because it
creates no objects for unread values; interpreted, it is much slower. It accepts only text that
``json.loads`` certainly reads in the same way. Unusual text is left to ``json``: escapes in names,
repeated names, deep nesting, NaN.
"""

from __future__ import annotations

import json
from types import FunctionType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

Members = dict[str, object]

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_COMMA: Final = 0x2C
_COLON: Final = 0x3A
_MINUS: Final = 0x2D
_PLUS: Final = 0x2B
_POINT: Final = 0x2E
_ZERO: Final = 0x30
_NINE: Final = 0x39
_OPEN_ARRAY: Final = 0x5B
_CLOSE_ARRAY: Final = 0x5D
_OPEN_OBJECT: Final = 0x7B
_CLOSE_OBJECT: Final = 0x7D
_SPACE: Final = 0x20
_U: Final = 0x75
_ESCAPES: Final = b'"\\/bfnrtu'
_HEX: Final = b"0123456789abcdefABCDEF"
# One bit per level, and the digits that int() reads regardless of its settings.
_DEEPEST: Final = 60
_LONGEST_NUMBER: Final = 300
_LONGEST_INTEGER: Final = 15
_WORDS: Final = {0x74: b"true", 0x66: b"false", 0x6E: b"null"}
_CONSTANTS: Final[dict[int, bool | None]] = {0x74: True, 0x66: False, 0x6E: None}


def read_members(data: bytes, at: i64, names: dict[bytes, str]) -> tuple[Members, i64] | None:
    """The members in ``names`` of the object at ``at``, and the end of the object. None if ``json``
    has to read it. Skipped text may be invalid UTF-8."""
    try:
        return _read(data, at, names)
    except (IndexError, UnicodeDecodeError):  # it has no end, or is not UTF-8
        return None


def read_member(data: bytes, at: i64, names: dict[bytes, str]) -> tuple[Members, i64] | None:
    """The result of ``read_members`` for the object whose name ends at ``at``."""
    try:
        at = _value_of(data, at)
        return _read(data, at, names) if at >= 0 else None
    except (IndexError, UnicodeDecodeError):
        return None


def _read(data: bytes, at: i64, names: dict[bytes, str]) -> tuple[Members, i64] | None:
    if data[at] != _OPEN_OBJECT:
        return None

    found: Members = {}
    at = _skip_space(data, at + 1)
    while data[at] == _QUOTE:
        quote: i64 = _plain_end(data, at + 1)
        if quote < 0:
            return None

        name = names.get(data[at + 1 : quote])
        at = _value_of(data, quote + 1)
        end: i64 = -1 if at < 0 else _value_end(data, at)
        if end < 0:
            return None

        if name is not None:
            if name in found:
                return None
            found[name] = _value(data, at, end)

        at = _skip_space(data, end)
        if data[at] == _CLOSE_OBJECT:
            return found, at + 1
        if data[at] != _COMMA:
            return None

        at = _skip_space(data, at + 1)

    return None


def _skip_space(data: bytes, at: i64) -> i64:
    byte: i64 = data[at]
    while byte == _SPACE or 9 <= byte <= 10 or byte == 13:
        at += 1
        byte = data[at]
    return at


def _value_of(data: bytes, at: i64) -> i64:
    """The index of the value whose name ends at ``at``; -1 if there is none."""
    at = _skip_space(data, at)
    return _skip_space(data, at + 1) if data[at] == _COLON else -1


def _value_end(data: bytes, at: i64) -> i64:
    """The index of the end of a value; -1 if the value is invalid or unusual."""
    depth: i64 = 0
    objects: i64 = 0  # a bit for each level: whether it is an object
    while True:
        byte: i64 = data[at]
        if byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:  # noqa: SIM109
            if depth == _DEEPEST:
                return -1

            depth += 1
            objects = objects << 1
            if byte == _OPEN_OBJECT:
                objects |= 1

            at = _skip_space(data, at + 1)
            if data[at] != byte + 2:  # like the brackets in ASCII
                at = _next(data, at, objects & 1)
                if at < 0:
                    return -1

                continue
        elif (at := _scalar_end(data, at, byte)) < 0:
            return -1
        elif depth == 0:
            return at

        at, depth, objects, is_next = _close(data, at, depth, objects)
        if not is_next:
            return at


def _close(data: bytes, at: i64, depth: i64, objects: i64) -> tuple[i64, i64, i64, bool]:
    """Read the ends of containers that follow a value at some depth, or that take the place of its
    first value. True means that another value follows at the returned index; otherwise, the index
    is the end, or -1."""
    while depth > 0:
        at = _skip_space(data, at)
        byte: i64 = data[at]
        if byte == _COMMA:
            at = _next(data, _skip_space(data, at + 1), objects & 1)
            return at, depth, objects, at >= 0
        if byte != (_CLOSE_OBJECT if objects & 1 else _CLOSE_ARRAY):
            return -1, 0, 0, False

        at += 1
        depth -= 1
        objects >>= 1

    return at, 0, 0, False


def _next(data: bytes, at: i64, is_in_object: i64) -> i64:
    """The index of the next value, after its name if it has one; -1 if there is none."""
    if not is_in_object:
        return at
    if data[at] != _QUOTE or (at := _string_end(data, at + 1)) < 0:
        return -1
    return _value_of(data, at)


def _scalar_end(data: bytes, at: i64, byte: i64) -> i64:
    if byte == _QUOTE:
        return _string_end(data, at + 1)
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        return _number_end(data, at)
    word = _WORDS.get(byte)
    if word is None or data[at : at + len(word)] != word:
        return -1
    return at + len(word)


def _plain_end(data: bytes, at: i64) -> i64:
    """The index of the closing quote of a string without escapes."""
    byte: i64 = data[at]
    while byte != _QUOTE:
        if byte < _SPACE or byte == _BACKSLASH:
            return -1
        at += 1
        byte = data[at]
    return at


def _string_end(data: bytes, at: i64) -> i64:
    byte: i64 = data[at]
    while byte != _QUOTE:
        if byte < _SPACE:
            return -1

        if byte == _BACKSLASH:
            at += 1
            byte = data[at]
            if byte not in _ESCAPES:
                return -1

            if byte == _U:
                for digit in data[at + 1 : at + 5]:
                    if digit not in _HEX:
                        return -1

                at += 4

        at += 1
        byte = data[at]

    return at + 1


def _number_end(data: bytes, at: i64) -> i64:
    begin: i64 = at
    if data[at] == _MINUS:
        at += 1

    at = at + 1 if data[at] == _ZERO else _digits_end(data, at)
    if at > 0 and data[at] == _POINT:
        at = _digits_end(data, at + 1)

    if at > 0 and (data[at] | 0x20) == 0x65:  # e or E
        at += 1
        if data[at] == _PLUS or data[at] == _MINUS:
            at += 1

        at = _digits_end(data, at)

    return -1 if at - begin > _LONGEST_NUMBER else at


def _digits_end(data: bytes, at: i64) -> i64:
    """The index of the end of the digits; -1 if there are none."""
    begin: i64 = at
    while _ZERO <= data[at] <= _NINE:
        at += 1
    return at if at > begin else -1


def _value(data: bytes, at: i64, end: i64) -> object:
    byte: i64 = data[at]
    if byte == _QUOTE:
        text = data[at + 1 : end - 1]
        return text.decode() if text.find(b"\\") < 0 else json.loads(data[at:end])
    if byte in _CONSTANTS:
        return _CONSTANTS[byte]
    if end - at > _LONGEST_INTEGER or not _ZERO <= byte <= _NINE:
        return json.loads(data[at:end])

    number: i64 = 0
    place: i64 = at
    while place < end:
        digit: i64 = data[place] - _ZERO
        if digit < 0 or digit > 9:  # a point, or an exponent
            return json.loads(data[at:end])

        number = number * 10 + digit
        place += 1

    return number


IS_COMPILED: Final = not isinstance(read_members, FunctionType)
"""Whether the scan is worthwhile."""
