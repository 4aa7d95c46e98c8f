"""Token meter: finds the tokens used by a request in the bytes of its answer. Pure.

Engines report them in an object ``usage`` near the end of an answer or event stream, and
llama.cpp's own APIs in one named ``timings``. Only that object is parsed. Quotation marks in a JSON
string are escaped, so a model's output cannot imitate it.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from moorage.proxy.core.content_coding import Unpacker
from moorage.proxy.core.json_scan import scan
from moorage.proxy.core.member_scan import IS_COMPILED, read_member

# Approximate bytes of a prompt per token. The answer corrects this estimate.
BYTES_PER_TOKEN: Final = 4
_NAME: Final = b'"usage"'
_TIMINGS: Final = b'"timings"'
_BEGINS = re.compile(rb"\s*:\s*\{")
# Objects with that name that are examined, last first, because the last is usually the right one.
_MOST: Final = 16
# The object's names in OpenAI's chat, responses and realtime sessions.
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
COUNTS: Final = {
    name.encode(): name
    for name in (
        "prompt_tokens",
        "input_tokens",
        "completion_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_n",
        "predicted_n",
        "prompt_n",
        "tokens",
        *_DETAILS,
    )
}
# Objects examined in one piece of a session. Invalid objects take longer.
_MOST_LOOKS: Final = 4096
_LOOKS_OF_NONE: Final = 16
_TAIL_BYTES: Final = 4096
_TAIL_CHUNKS: Final = 8
# Anthropic's streams report the prompt's tokens in their first event.
_HEAD_BYTES: Final = 4096
_LARGEST: Final = 1 << 40
_NONE: Final[deque[bytes]] = deque()


class Tokens:
    """Used tokens. ``cached``: the part of ``prompt`` that was in a cache."""

    __slots__ = ("answer", "cached", "prompt")

    def __init__(self, prompt: int = 0, answer: int = 0, cached: int = 0) -> None:
        self.prompt = prompt
        self.answer = answer
        self.cached = cached

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"Tokens({self.prompt}, {self.answer}, {self.cached})"

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prompt + other.prompt, self.answer + other.answer, self.cached + other.cached
        )

    def _all(self) -> tuple[int, int, int]:
        return self.prompt, self.answer, self.cached

    @property
    def total(self) -> int:
        return self.prompt + self.answer


class TokenMeter:
    """The meter for one answer. Pass each chunk of the body to ``feed``, which returns it; this
    costs less than a microsecond. ``generates``: an answer that is not a stream and reports nothing
    consists of generated tokens."""

    __slots__ = ("_chunks", "_events", "_first", "_generates", "_head", "_is_stream", "_size")

    def __init__(self, *, is_stream: bool, generates: bool = False) -> None:
        self._is_stream = is_stream
        self._generates = generates
        self._size = 0
        self._head = b""
        self._events = 0
        # the last chunks; most answers have only one
        self._first = b""
        self._chunks = _NONE

    def feed(self, chunk: bytes) -> bytes:
        if self._is_stream:
            self._events += chunk.count(b"data:")
            if not self._first:
                self._head = chunk[:_HEAD_BYTES]

        if not chunk:
            return chunk

        self._size += len(chunk)
        end = chunk if len(chunk) <= _TAIL_BYTES else chunk[-_TAIL_BYTES:]
        if not self._first:
            self._first = end
            return chunk
        if self._chunks is _NONE:
            self._chunks = deque((self._first,), maxlen=_TAIL_CHUNKS)

        self._chunks.append(end)
        return chunk

    def read(self) -> Tokens | None:
        """The tokens that the answer has reported so far, or None."""
        tail = self._first if self._chunks is _NONE else b"".join(self._chunks)
        stated = _last_usage(tail) or _last_usage(tail, _TIMINGS)
        begun = _last_usage(self._head) if self._is_stream else None
        if stated is None or begun is None:
            return stated or begun
        return Tokens(stated.prompt or begun.prompt, stated.answer, stated.cached or begun.cached)

    def estimate(self, prompt: int) -> Tokens:
        """The estimated tokens of an answer that reports none: one for each event of a stream, or
        by the size of a generated answer, and ``prompt``, the request's estimate."""
        if (found := self.read()) is not None:
            return found
        by_size = self._size // BYTES_PER_TOKEN if self._generates and not self._is_stream else 0
        return Tokens(prompt, by_size or max(0, self._events - 1))


class PackedMeter:
    """The meter for a compressed answer. An unreadable part is counted by its size, like a
    prompt."""

    __slots__ = ("_meter", "_size", "_unpacker")

    def __init__(self, coding: str, *, is_stream: bool) -> None:
        self._unpacker = Unpacker(coding)
        self._meter = TokenMeter(is_stream=is_stream)
        self._size = 0  # bytes that could not be read

    def feed(self, chunk: bytes) -> bytes:
        self._meter.feed(self._unpacker.feed(chunk))
        if self._unpacker.is_lost:
            self._size += len(chunk)
        return chunk

    def estimate(self, prompt: int) -> Tokens:
        """The estimate, as in ``TokenMeter.estimate``."""
        found = self._meter.estimate(prompt)
        if not self._unpacker.is_lost:
            return found
        return Tokens(found.prompt, found.answer + self._size // BYTES_PER_TOKEN, found.cached)


class SessionMeter:
    """The meter for a WebSocket's messages, each of which may report its usage. The frames are read
    as sent, so the meter misses reports that are split by a frame's head, and reports in a piece
    that contains implausibly many."""

    __slots__ = ("_rest", "_sum")

    def __init__(self) -> None:
        self._rest = b""
        self._sum = Tokens()

    def feed(self, chunk: bytes) -> bytes:
        data = self._rest + chunk
        start = end = 0
        looks = _MOST_LOOKS
        while looks > 0 and (start := data.find(_NAME, start)) >= 0:
            start += len(_NAME)
            if (found := _usage_at(data, start)) is not None:
                tokens, end = found
                self._sum += tokens
                start = end
                looks -= 1
            else:
                looks -= _LOOKS_OF_NONE

        self._rest = data[max(end, len(data) - _TAIL_BYTES) :]
        return chunk

    def estimate(self, prompt: int) -> Tokens:
        """The reported tokens. ``prompt`` is unused, because there is no request with a size."""
        return self._sum


def _last_usage(data: bytes, name: bytes = _NAME) -> Tokens | None:
    end = len(data)
    for _ in range(_MOST):
        if (end := data.rfind(name, 0, end)) < 0:
            break
        found = _usage_at(data, end + len(name))
        if found is not None and (found[0].prompt or found[0].answer):
            return found[0]
    return None


def _usage_at(data: bytes, at: int) -> tuple[Tokens, int] | None:
    """The tokens in the object whose name ends at ``at``, and the object's end. None if there is no
    complete object."""
    if IS_COMPILED and (read := read_member(data, at, COUNTS)) is not None:
        return _tokens(read[0]), read[1]
    if (begins := _BEGINS.match(data, at)) is None:
        return None

    at = begins.end() - 1
    try:
        # Decode one byte per character, regardless of the encoding, because names and numbers are
        # ASCII.
        stated, size = scan(data[at : at + _TAIL_BYTES].decode("latin-1"), 0)
    except (ValueError, StopIteration, RecursionError):
        return None

    return _tokens(stated), at + size


def _tokens(usage: dict[str, object]) -> Tokens:
    """The tokens in a report from OpenAI's chat and completions (``prompt_tokens``), from its
    responses and Anthropic's messages (``input_tokens``), from Cohere's chat (these in ``tokens``),
    or from llama.cpp (``prompt_n``)."""
    if isinstance(counted := usage.get("tokens"), dict):
        usage = counted

    if "predicted_n" in usage:
        cached = _count(usage, "cache_n")
        return Tokens(_count(usage, "prompt_n") + cached, _count(usage, "predicted_n"), cached)

    prompt = _count(usage, "prompt_tokens") or _count(usage, "input_tokens")
    answer = _count(usage, "completion_tokens") or _count(usage, "output_tokens")
    cached = _count(usage, "cache_read_input_tokens")
    for name in _DETAILS:
        details = usage.get(name)
        if isinstance(details, dict):
            cached = cached or _count(details, "cached_tokens")

    return Tokens(prompt, answer, min(cached, prompt) if prompt else cached)


def _count(counts: dict[str, object], name: str) -> int:
    count = counts.get(name)
    return min(count, _LARGEST) if isinstance(count, int) and count > 0 else 0
