"""Homes of stored responses: for each id, the replica that stores the response, and its project.
Pure.

An engine keeps a response (``GET /v1/responses/{id}``, ``previous_response_id``) in its own memory,
so only the replica that created it can return it. The proxy reads the id from the answer that
creates the response, and remembers the replica. A response that it does not remember does not exist
for it, unless the id itself names the replica (``stored_response``). Requests for unknown ids are
not sent to any replica, so no caller can read another project's responses.

It works on memory shared by a proxy's workers: a set-associative table of a fixed size. A full set
forgets its oldest response, and all responses are forgotten after ``KEPT_S``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from moorage.common.link.messages import KeyGrant
from moorage.common.model.ids import KernelId
from moorage.proxy.core.body_reader import BodyReader, TooIntricate
from moorage.proxy.core.limits.ledger import Lock, unlocked

KEPT_S = 24 * 3600
# Digests of the id and its owner, the creation time, whether the tokens were counted, and the home.
_SLOT = Struct("<16s16sd?215p")
_WAYS = 8
_LONGEST = 214
_NOBODY = bytes(16)
_MAX_ANSWER = 4 * 1024 * 1024
# Bytes of an answer that are searched for its id; engines need a few hundred.
_MOST_STEPS = 8000
_MOST_LINES = 1000
_OF_ANSWER = frozenset({"id", "status"})
_OF_EVENT = frozenset({"response"})
_DATA = b"data:"
_ENDED = frozenset({"completed", "failed", "cancelled", "incomplete"})
_ENDS = (b"response.completed", b"response.failed", b"response.incomplete")  # events


def bytes_needed(sets: int) -> int:
    return sets * _WAYS * _SLOT.size


def owner_of(key: KeyGrant | None) -> str:
    """The owner of a key's responses: the key's project, or the key itself if it has none."""
    if key is None:
        return "all"
    return f"project {key.project}" if key.project else f"key {key.sha256}"


@dataclass(frozen=True, slots=True)
class Home:
    """A response's home. ``is_counted``: its tokens were metered."""

    model: str
    kernel_id: KernelId
    is_counted: bool


class ResponseHomes:
    """The homes. Times are monotonic seconds of one clock for all workers. ``lock``: locks sets."""

    def __init__(self, memory: memoryview, lock: Lock = unlocked) -> None:
        self._memory = memory
        self._lock = lock
        self._sets = len(memory) // bytes_needed(1)

    def remember(self, response_id: str, owner: str, home: Home, now: float) -> None:
        """Remember a created response. If another owner has a response with the same id, neither
        keeps it."""
        place = f"{home.kernel_id} {home.model}".encode()
        if len(place) > _LONGEST:
            return

        digest = _digest(response_id)
        mine = _digest(owner)
        number = self._number(digest)
        with self._lock([number]):
            slot = self._find(number, digest, now)
            if slot is None:
                slot = min(self._slots(number), key=self._made_at)
            elif _SLOT.unpack_from(self._memory, slot)[1] != mine:
                mine = _NOBODY

            _SLOT.pack_into(self._memory, slot, digest, mine, now, home.is_counted, place)

    def find(self, response_id: str, owner: str, now: float) -> Home | None:
        """Find a response; None if this owner has none with this id."""
        digest = _digest(response_id)
        number = self._number(digest)
        with self._lock([number]):
            slot = self._find(number, digest, now)
            if slot is None:
                return None

            _, whose, _, is_counted, place = _SLOT.unpack_from(self._memory, slot)

        if whose != _digest(owner):
            return None

        kernel_id, _, model = place.decode().partition(" ")
        return Home(model, KernelId(kernel_id), is_counted)

    def _find(self, number: int, digest: bytes, now: float) -> int | None:
        for slot in self._slots(number):
            found, _, made_at, *_ = _SLOT.unpack_from(self._memory, slot)
            if found == digest and now - made_at < KEPT_S:
                return slot
        return None

    def _made_at(self, slot: int) -> float:
        """A slot's creation time; 0 if the slot is free."""
        made_at: float = _SLOT.unpack_from(self._memory, slot)[2]
        return made_at

    def _number(self, digest: bytes) -> int:
        return int.from_bytes(digest[:8]) % self._sets

    def _slots(self, number: int) -> range:
        first = number * _WAYS * _SLOT.size
        return range(first, first + _WAYS * _SLOT.size, _SLOT.size)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class ResponseReader:
    """Reads a response's id and end from an answer, which is a JSON object or a stream of events.
    It calls ``found`` before the client can know the id. ``feed`` returns its input."""

    def __init__(self, found: Callable[[str, bool], None], *, is_stream: bool) -> None:
        self._found = found
        self._is_stream = is_stream
        self._reader: BodyReader | None = BodyReader(
            _OF_EVENT if is_stream else _OF_ANSWER, _MOST_STEPS
        )
        self._bytes_left = _MAX_ANSWER
        self._lines_left = _MOST_LINES
        self._line = b""  # the beginning, while it is too short to show its type
        self._is_in_line = False
        self._is_data = False
        self._is_broken = False
        self._id = ""

    def feed(self, piece: bytes) -> bytes:
        if self._id:
            if any(end in piece for end in _ENDS):
                self._found(self._id, True)
        elif self._reader is not None and piece:
            if self._is_stream:
                self._read_lines(self._line + piece)
            else:
                self._read(piece)

            self._bytes_left -= len(piece)
            if self._id or self._is_over():
                self._reader = None
                self._line = b""

        return piece

    def _is_over(self) -> bool:
        is_read = self._is_broken and not self._is_stream
        return is_read or self._bytes_left < 0 or self._lines_left < 0

    def _read_lines(self, data: bytes) -> None:
        at = 0
        size = len(data)
        while at < size and not self._id and self._lines_left >= 0:
            if not self._is_in_line:
                if len(data) - at < len(_DATA) and _DATA.startswith(data[at:]):
                    break

                self._lines_left -= 1
                self._is_data = data.startswith(_DATA, at)
                self._is_in_line = True
                if data[at] in b"\r\n":
                    self._end_event()
                elif self._is_data:
                    at += len(_DATA)

            end = data.find(b"\n", at) + 1
            if self._is_data:
                self._read(data[at : end or size])

            self._is_in_line = not end
            at = end or size

        self._line = data[at:]

    def _end_event(self) -> None:
        reader = self._reader
        assert reader is not None
        if not self._is_broken and reader.is_complete:
            self._tell(reader.members.get("response"))
        self._reader = BodyReader(_OF_EVENT, reader.steps_left)
        self._is_broken = False

    def _read(self, piece: bytes) -> None:
        """Read a piece of the answer, or of an event's data."""
        reader = self._reader
        assert reader is not None
        if self._is_broken:
            return

        try:
            reader.feed(piece)
        except (ValueError, RecursionError, TooIntricate):
            self._is_broken = True
            return

        if reader.is_complete and not self._is_stream:
            self._tell(reader.members)

    def _tell(self, document: object) -> None:
        if isinstance(document, dict) and isinstance(response_id := document.get("id"), str):
            self._id = response_id
            self._found(response_id, document.get("status") in _ENDED)
