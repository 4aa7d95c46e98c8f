"""Body reader: finds selected members of a JSON object, piece by piece. Pure.

``json.loads`` reads a body at once and creates an object for each value in it, so a few megabytes
of small values block the event loop for a second. This reader skips other members with regular
expressions and can stop wherever a piece ends, so the time for a piece is bounded by its size. It
accepts and refuses the same texts as ``json.loads``, except for nesting and for numbers that no
engine can read either.

Only the beginning of a large selected value is kept: strings and containers in it may be cut short.
"""

from __future__ import annotations

import codecs
import json
import re
from json import detect_encoding
from typing import Final

_SPACE: Final = r"[ \t\n\r]*+"
_ESCAPE: Final = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRING: Final = rf'"(?:[^"\\\x00-\x1f]++|{_ESCAPE})*+"'
# The most digits that ``int`` accepts.
_NUMBER: Final = r"-?(?:0|[1-9][0-9]{0,4299}+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_WORD: Final = r"(?:true|false|null|NaN|-?Infinity)"
_SCALAR: Final = f"(?:{_STRING}|{_NUMBER}|{_WORD})"


def _with_containers(value: str) -> str:
    """A pattern for ``value`` or a container of such values, where each comma is followed by
    another value."""
    array = rf"\[{_SPACE}(?:{value}{_SPACE}(?:,{_SPACE}(?!\])|(?=\])))*+\]"
    member = f"{_STRING}{_SPACE}:{_SPACE}{value}{_SPACE}"
    return rf"(?:{_SCALAR}|{array}|\{{{_SPACE}(?:{member}(?:,{_SPACE}(?!\}})|(?=\}})))*+\}})"


# Consecutive values that are flat enough are skipped in one step.
_FLAT: Final = _with_containers(
    _with_containers(_with_containers(_with_containers(_with_containers(_SCALAR))))
)
_ELEMENTS: Final = re.compile(f"(?:{_FLAT}{_SPACE},{_SPACE})*+")
_MEMBERS: Final = re.compile(f"(?:{_STRING}{_SPACE}:{_SPACE}{_FLAT}{_SPACE},{_SPACE})*+")
NAMES: Final = frozenset(
    {
        "model",
        "stream",
        "priority",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "previous_response_id",
        "background",
        "input",
        "instructions",
        "messages",
        "prompt",
        "store",
        "system",
        "id",
        "status",
        "response",
    }
)
"""All members selected by any reader, in one expression, because compiling an expression takes
time."""
# Members of a document with none of these names, and without escapes that could hide letters.
_OTHER_NAME: Final = rf'"(?!(?:{"|".join(sorted(NAMES))})")(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+"'
_OTHERS: Final = re.compile(f"(?:{_OTHER_NAME}{_SPACE}:{_SPACE}{_FLAT}{_SPACE},{_SPACE})*+")
# A member whose value is a nested container.
_OPENING: Final = re.compile(rf"{_STRING}{_SPACE}:{_SPACE}[\[{{]")
_SPACES: Final = re.compile(_SPACE)
_CONTENT: Final = re.compile(rf'(?:[^"\\\x00-\x1f]++|{_ESCAPE})*+')
_ATOM: Final = re.compile(rf"(?:{_NUMBER}|{_WORD})(?=[ \t\n\r,\]}}])")
# Beginnings of incomplete atoms.
_PARTIAL_ATOM: Final = re.compile(r"[-+.0-9a-zA-Z]*+")

_DEEPEST: Final = 900
_LONGEST_ATOM: Final = 8192
_LONGEST_NAME: Final = 256
_LONGEST_ESCAPE: Final = 6
# The most characters kept of a selected value, which is cut at the next possible place, and of an
# incomplete string in it.
_KEPT_CHARS: Final = 65_536
_STRING_CHARS: Final = 16_384

# The tokens that can be expected next.
_VALUE: Final = 0
_FIRST: Final = 1  # a value, or the end of an array
_NAME: Final = 2
_FIRST_NAME: Final = 3  # a name, or the end of an object
_COLON: Final = 4
_AFTER: Final = 5  # a comma, or the end of a container
_STRING_END: Final = 6  # the rest of a string, or its end
_NAME_END: Final = 7

_CLOSING: Final = {"[": "]", "{": "}"}


class TooIntricate(Exception):
    """A document has too many small values at too many depths to be read in reasonable time."""


class BodyReader:
    """A reader for one body. Pass its pieces to ``feed`` in order, then call ``end``. Both raise
    ``ValueError`` for invalid JSON.

    ``members``: the object's members that are in ``names``. ``repeated``: those that occur more
    than once. ``begin``: the beginning of the document, which shows its type. ``is_complete``: the
    document has ended. ``model_span``: the position of the ``model`` value, in characters.
    ``steps_left``: if a document takes more steps than this, in addition to one per piece, ``feed``
    raises ``TooIntricate``.
    """

    def __init__(self, names: frozenset[str], steps_left: int = 1 << 60) -> None:
        self.members: dict[str, object] = {}
        self.repeated: set[str] = set()
        self.begin = ""
        self.is_complete = False
        self.model_span = (0, 0)
        assert names <= NAMES
        self._names = names
        self.steps_left = steps_left
        self._decoder: codecs.IncrementalDecoder | None = None
        self._undecoded = b""

        # the unprocessed rest, and the number of characters before it
        self._rest = ""
        self._passed = 0
        self._stack: list[str] = []
        self._state = _VALUE
        self._name: list[str] | None = None  # the received part of a member's name
        self._name_chars = 0

        # the member whose value follows, and the one being read
        self._asked = ""
        self._member = ""
        self._value_begin = 0
        self._kept: list[str] | None = None  # depth of the value being read, until it is complete

        # characters that can still be kept of the value, and of a string in it
        self._room = 0
        self._string_room = 0

    def feed(self, piece: bytes) -> None:
        if (decoder := self._decoder) is None:
            piece = self._undecoded + piece
            if len(piece) < 4:
                self._undecoded = piece
                return
            decoder = self._begin_decoding(piece)
            self._undecoded = b""
        self._read(decoder.decode(piece))

    def end(self) -> None:
        decoder = self._decoder or self._begin_decoding(self._undecoded)
        # The newline terminates the document if it is a number.
        self._read(decoder.decode(self._undecoded, True) + "\n")
        if not self.is_complete:
            raise ValueError("it is incomplete")

    def _begin_decoding(self, begin: bytes) -> codecs.IncrementalDecoder:
        self._decoder = codecs.getincrementaldecoder(detect_encoding(begin))("surrogatepass")
        return self._decoder

    def _read(self, text: str) -> None:
        text = self._rest + text
        at = 0
        size = len(text)
        self.steps_left += 1

        while at < size:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise TooIntricate

            if self._state >= _STRING_END:
                end = self._read_string(text, at)
            else:
                at = _end_of(_SPACES, text, at)
                if at == size:
                    break

                end = self._read_token(text, at)

            if end < 0:
                break
            if self._kept is not None:
                self._keep(text, at, end)

            at = end

        self._rest = text[at:]
        self._passed = self._passed + at

    def _read_token(self, text: str, at: int) -> int:
        """Read a token and return its end, or -1 if more text is needed."""
        state = self._state
        stack = self._stack
        char = text[at]
        if state == _AFTER:
            return self._go_on(text, at)

        if state == _COLON:
            if char != ":":
                raise self._broken("':' is missing", at)

            self._state = _VALUE
            return at + 1

        if char == ("]" if state == _FIRST else "}" if state == _FIRST_NAME else ""):
            stack.pop()
            self._ended(at + 1)
            return at + 1

        if state in (_NAME, _FIRST_NAME):
            return self._read_name(text, at, char)

        if self._asked:
            self._member = self._asked
            self._asked = ""
            self._kept = []
            self._room = _KEPT_CHARS
            self._value_begin = self._passed + at
        elif state in (_VALUE, _FIRST) and stack and stack[-1] == "[":
            end = _end_of(_ELEMENTS, text, at, self._limit(text, at))
            if end > at:
                self._state = _VALUE
                return end

        return self._read_value(text, at, char)

    def _go_on(self, text: str, at: int) -> int:
        """Continue after a value, with a comma or the ends of containers, and with directly
        following tokens."""
        stack = self._stack
        if self.is_complete:
            raise self._broken("something follows its end", at)

        while True:
            char = text[at]
            if char == ",":
                self._state = _VALUE if stack[-1] == "[" else _NAME
                return at + 1
            if char != _CLOSING[stack[-1]]:
                raise self._broken("a comma or the end is missing", at)

            stack.pop()
            at += 1
            if len(stack) < 2 or at == len(text) or text[at] not in ",]}":
                self._ended(at)
                return at

    def _read_name(self, text: str, at: int, char: str) -> int:
        if len(self._stack) > 1:
            end = _end_of(_MEMBERS, text, at, self._limit(text, at))
        else:
            end = _end_of(_OTHERS, text, at)

        if end > at:
            self._state = _NAME
            return end

        if len(self._stack) > 1:
            end = _end_of(_OPENING, text, at, self._limit(text, at))
            if end > at:
                return self._open(text[end - 1], end - 1)

        if char != '"':
            raise self._broken("a name is missing", at)

        self._state = _NAME_END
        if len(self._stack) == 1:
            self._member = ""

        self._name = [] if len(self._stack) == 1 else None
        self._name_chars = 0
        return at + 1

    def _read_value(self, text: str, at: int, char: str) -> int:
        stack = self._stack
        if not stack:
            self.begin = char
        if char == '"':
            self._state = _STRING_END
            return at + 1
        if char in _CLOSING:
            return self._open(char, at)

        atom = _ATOM.match(text, at)
        if atom is not None:
            self._ended(atom.end())
            return atom.end()

        end = _end_of(_PARTIAL_ATOM, text, at)
        if at < end == len(text) and end - at < _LONGEST_ATOM:
            return -1

        raise self._broken("a value is missing", at)

    def _open(self, char: str, at: int) -> int:
        if len(self._stack) == _DEEPEST:
            raise RecursionError
        self._stack.append(char)
        self._state = _FIRST if char == "[" else _FIRST_NAME
        return at + 1

    def _read_string(self, text: str, at: int) -> int:
        end = _end_of(_CONTENT, text, at)
        if (
            self._state == _NAME_END
            and self._name is not None
            and self._name_chars <= _LONGEST_NAME
        ):
            self._name.append(text[at : min(end, at + _LONGEST_NAME)])
            self._name_chars += end - at

        if end == len(text):
            return end

        if text[end] == '"':
            if end > at and self._kept is not None:
                return end  # its content is kept even before its end

            self._end_string(end + 1)
            return end + 1

        if text[end] == "\\" and len(text) - end < _LONGEST_ESCAPE:
            return end if end > at else -1

        raise self._broken("a string is malformed", end)

    def _end_string(self, end: int) -> None:
        if self._state == _STRING_END:
            self._ended(end)
            return

        self._state = _COLON
        if self._name is None:
            return

        name = "".join(self._name)
        self._name = None
        if "\\" in name and self._name_chars <= _LONGEST_NAME:
            name = json.loads(f'"{name}"')

        if name in self._names:
            if name in self.members:
                self.repeated.add(name)
            self._asked = name

    def _ended(self, end: int) -> None:
        """Record the end of a value."""
        self._state = _AFTER
        depth = len(self._stack)
        if not depth:
            self.is_complete = True
        elif depth == 1 and self._member == "model":
            self.model_span = self._value_begin, self._passed + end

    # The selected value

    def _limit(self, text: str, at: int) -> int:
        return len(text) if self._kept is None else min(len(text), at + self._room)

    def _keep(self, text: str, at: int, end: int) -> None:
        """Keep ``text[at:end]`` of the selected value."""
        kept = self._kept
        state = self._state
        stack = self._stack
        assert kept is not None
        piece = text[at:end]
        if piece == '"':
            self._string_room = min(_STRING_CHARS, max(0, self._room))
        elif state >= _STRING_END and len(piece) > self._string_room:
            piece = text[at : _end_of(_CONTENT, text, at, at + self._string_room)]
            self._string_room = 0

        kept.append(piece)
        self._room -= len(piece)
        self._string_room -= len(piece)

        if state == _AFTER and len(stack) == 1:
            self._tell("".join(kept))
        elif self._room <= 0 and (
            state in (_AFTER, _FIRST, _FIRST_NAME, _NAME) or self._is_next_element()
        ):
            begun = "".join(kept).rstrip(" \t\n\r").removesuffix(",")
            self._tell(begun + "".join(_CLOSING[bracket] for bracket in reversed(stack[1:])))

    def _is_next_element(self) -> bool:
        return self._state == _VALUE and self._stack[-1] == "["

    def _tell(self, value: str) -> None:
        self.members[self._member] = json.loads(value)
        self._kept = None

    def _broken(self, problem: str, at: int) -> ValueError:
        return ValueError(f"{problem} at character {self._passed + at}")


def _end_of(expression: re.Pattern[str], text: str, at: int, limit: int = 1 << 60) -> int:
    """The end of a match at ``at``, or ``at`` itself if nothing matches."""
    found = expression.match(text, at, limit)
    return at if found is None else found.end()
