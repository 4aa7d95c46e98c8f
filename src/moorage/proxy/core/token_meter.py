"""Token meter: finds the tokens that a request has used in the bytes of its answer. Pure.

Engines state them in an object ``usage``, near the end of an answer or of an event stream. No more than that
object is parsed. In a string of JSON every quotation mark is escaped, so nothing that a model writes can look
like it.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

# An object with at most two levels of objects in it, as the details of OpenAI's are.
_INNER = rb"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:%b[^{}]*)*\})' % _INNER)
_COUNT = re.compile(
    rb'"((?:prompt|input|completion|output|cached|cache_read_input)_tokens)"\s*:\s*([0-9]{1,40})(?![0-9.eE])'
)
_TAIL_BYTES, _TAIL_CHUNKS = 4096, 8
# Anthropic's streams state the tokens of the prompt in their first event.
_HEAD_BYTES = 4096
_LARGEST = 1 << 40


class Tokens(NamedTuple):
    """``cached``: those of ``prompt`` that a cache had."""

    prompt: int = 0
    answer: int = 0
    cached: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.answer


class TokenMeter:
    """One answer. Give each chunk of its body to ``feed``, which returns it; this costs less than a
    microsecond."""

    __slots__ = ("_events", "_head", "_is_stream", "_tail")

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._head, self._events = b"", 0
        self._tail: deque[bytes] = deque(maxlen=_TAIL_CHUNKS)

    def feed(self, chunk: bytes) -> bytes:
        if self._is_stream:
            self._events += chunk.count(b"data:")
            if not self._tail:
                self._head = chunk[:_HEAD_BYTES]
        if chunk:
            self._tail.append(chunk[-_TAIL_BYTES:])
        return chunk

    def read(self) -> Tokens | None:
        """The tokens that the answer states so far; None: it states none."""
        stated = _last_usage(b"".join(self._tail))
        begun = _last_usage(self._head) if self._is_stream else None
        if stated is None or begun is None:
            return stated or begun
        return Tokens(stated.prompt or begun.prompt, stated.answer, stated.cached or begun.cached)

    def estimate(self, prompt: int) -> Tokens:
        """The tokens of an answer that states none: one for each event of a stream, and ``prompt``, the
        estimate of the request."""
        return self.read() or Tokens(prompt, max(0, self._events - 1))


class SessionMeter:
    """The messages of a WebSocket, each of which may state what it used. They are read as they are sent, in
    their frames, so a statement that is torn apart by a frame's head is missed."""

    __slots__ = ("_rest", "_sum")

    def __init__(self) -> None:
        self._rest, self._sum = b"", Tokens()

    def feed(self, chunk: bytes) -> bytes:
        data = self._rest + chunk
        end = 0
        for found in _USAGE.finditer(data):
            end, tokens = found.end(), _tokens(dict(_COUNT.findall(found[1])))
            self._sum = Tokens(*(a + b for a, b in zip(self._sum, tokens, strict=True)))
        self._rest = data[max(end, len(data) - _TAIL_BYTES) :]
        return chunk

    def estimate(self, prompt: int) -> Tokens:
        """The tokens that were stated. ``prompt`` is of no use: there is no request with a size."""
        return self._sum


def _last_usage(data: bytes) -> Tokens | None:
    end = len(data)
    while (start := data.rfind(b'"usage"', 0, end)) >= 0:
        end = start
        if (found := _USAGE.match(data, start)) is None:
            continue
        tokens = _tokens(dict(_COUNT.findall(found[1])))
        if tokens.prompt or tokens.answer:
            return tokens
    return None


def _tokens(counts: dict[bytes, bytes]) -> Tokens:
    """Of OpenAI's chat and completions (``prompt_tokens``), its responses and Anthropic's messages
    (``input_tokens``)."""
    prompt = _count(counts, b"prompt_tokens") or _count(counts, b"input_tokens")
    answer = _count(counts, b"completion_tokens") or _count(counts, b"output_tokens")
    cached = _count(counts, b"cache_read_input_tokens") or _count(counts, b"cached_tokens")
    return Tokens(prompt, answer, min(cached, prompt) if prompt else cached)


def _count(counts: dict[bytes, bytes], name: bytes) -> int:
    found = counts.get(name)
    return 0 if found is None else min(int(found), _LARGEST)
