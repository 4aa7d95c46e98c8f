"""Framing of requests and answers between the relay on the agent and the relay in the job. Pure.

HEAppE answers 200 and drops the engine's status and headers, so both are sent in the body. The
other side is ``deploy/heappe/moorage_job.py``. A body that ends without its last frame was cut off.
Text that HEAppE adds after a failure is not a frame, so it also means that the body was cut off.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.agent.runtimes.heappe.errors import STREAM_ERROR, STREAM_INVALID

RELAY_PATH = "/moorage/relay"
HEALTH_PATH = "/moorage/health"
_MAGIC = b"MG1 "
_MAX_LINE = 64 * 1024


class NotFramed(Exception):
    """The body is not an answer from the relay in the job. ``text``: its first part."""

    def __init__(self, data: bytes) -> None:
        self.text = data[:2000].decode(errors="replace")
        super().__init__(self.text)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer. ``status`` is 0 if the engine did not answer, for the reason in
    ``error``."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    error: str = ""


def request(
    key: str, method: str, path: str, headers: Sequence[tuple[str, str]], *, body: str
) -> str:
    head = {
        "key": key,
        "method": method,
        "path": path,
        "headers": [list(header) for header in headers],
    }
    return f"{_MAGIC.decode()}{json.dumps(head, separators=(',', ':'))}\n{body}"


def ending(key: str) -> str:
    """A request that asks the program in the job to exit."""
    return f"{_MAGIC.decode()}{json.dumps({'key': key, 'end': True}, separators=(',', ':'))}\n"


def is_relay(page: str) -> bool:
    """Whether this is the health page of a relay in a job."""
    try:
        found = json.loads(page)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("moorage") == 1


class AnswerDecoder:
    """Decoder for one answer. ``head`` is None until it is known; ``complete``: the last frame was
    read."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        self._line = b""
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Return the bytes from the engine's body in this piece. Raises ``NotFramed``."""
        body = []
        at = 0
        while at < len(data) and not self.complete:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                body.append(piece)
                continue

            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                self._check_start()
                break

            line = self._line + data[at:end]
            self._line = b""
            at = end + 1
            self._read_line(line)

        return body[0] if len(body) == 1 else b"".join(body)

    def _check_start(self) -> None:
        """Refuse text that cannot become one of our lines even before it is complete, because
        HEAppE's errors end without a line break."""
        start = self._line[: len(_MAGIC)]
        is_start = self.head is None and _MAGIC.startswith(start)
        is_length = self.head is not None and _is_length(self._line)
        if len(self._line) > _MAX_LINE or not (is_start or is_length):
            raise NotFramed(self._line)

    def _read_line(self, line: bytes) -> None:
        if self.head is None:
            self.head = _head(line)
            self.complete = self.head.status == 0
        elif _is_length(line):
            self._left = int(line, 16)
            self.complete = self._left == 0
        else:
            raise NotFramed(line)


def _head(line: bytes) -> Head:
    if not line.startswith(_MAGIC):
        raise NotFramed(line)
    try:
        value = json.loads(line[len(_MAGIC) :])
        headers = tuple((str(name), str(text)) for name, text in value.get("headers", ()))
        return Head(int(value["status"]), headers, str(value.get("error", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotFramed(line) from None


def _is_length(line: bytes) -> bool:
    return 0 < len(line) <= 8 and all(digit in b"0123456789abcdef" for digit in line)


def failure_in(text: str) -> str | None:
    """HEAppE's own error at the start of a body, or None."""
    for start in (STREAM_ERROR, STREAM_INVALID):
        if text.startswith(start.decode()):
            return text.removeprefix(STREAM_ERROR.decode()).partition("\n")[0].strip()
    return None


class PlainBody:
    """The body of an engine that HEAppE forwards unchanged, with HEAppE's errors as lines within
    it. The first error sets ``failure``, and everything after it is dropped. Lines that may turn
    out to be an error are held back."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._held = b""
        self._at_start = True
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        if self.failure is not None:
            return b""

        data = self._held + data
        self._held = b""
        at = 0 if self._at_start else _next_line(data, 0)
        while 0 <= at < len(data):
            rest = data[at:]
            for start in (STREAM_ERROR, STREAM_INVALID):
                if rest.startswith(start):
                    if b"\n" not in rest:
                        data = data[:at]
                        self._held = rest
                        return self._passed(data)

                    self.failure = failure_in(rest.decode(errors="replace"))
                    return self._passed(data[:at])

                if start.startswith(rest):
                    data = data[:at]
                    self._held = rest
                    return self._passed(data)

            at = _next_line(data, at)

        return self._passed(data)

    def end(self) -> bytes:
        """Return the data still held back at the end of the body."""
        held = self._held
        self._held = b""
        if held.startswith((STREAM_ERROR, STREAM_INVALID)):
            self.failure = failure_in(held.decode(errors="replace"))
            return b""
        return self._passed(held)

    @property
    def tail(self) -> bytes:
        """Where the forwarded data ends."""
        return self._tail

    def _passed(self, data: bytes) -> bytes:
        if data:
            self._at_start = data.endswith(b"\n")
            self._tail = (self._tail + data)[-64:]
        elif self._held and not self._tail:
            self._at_start = True
        return data


def _next_line(data: bytes, at: int) -> int:
    """The index at which the next line starts; -1 if there is none."""
    end = data.find(b"\n", at)
    return end + 1 if end >= 0 else -1
