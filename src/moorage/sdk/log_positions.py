"""Positions in logs whose oldest part their node rotates away. Pure."""

from __future__ import annotations

_MARK_BYTES = 4096
# A shorter end of the mark also begins logs that are not continued from there.
_SURE_BYTES = 16


class MarkSearch:
    """Where a log goes on behind ``mark``, the last bytes that were seen: feed it all that is kept."""

    def __init__(self, mark: bytes) -> None:
        self._mark, self._window, self._passed = mark, b"", 0
        self._place: int | None = None
        self.head = b""

    @property
    def is_decided(self) -> bool:
        """More pieces change nothing."""
        return self._place is not None and len(self.head) == _MARK_BYTES

    def feed(self, piece: bytes) -> None:
        self.head += piece[: _MARK_BYTES - len(self.head)]
        if self._place is not None:
            return
        self._window += piece
        at = self._window.find(self._mark)
        if at >= 0:
            self._place, self._window = self._passed + at + len(self._mark), b""
            return
        dropped = max(len(self._window) - len(self._mark) + 1, 0)
        self._passed += dropped
        self._window = self._window[dropped:]

    def place(self) -> int | None:
        """Bytes in front of it, or None if the mark is no longer kept."""
        return self._overlap() if self._place is None else self._place

    def _overlap(self) -> int | None:
        """The length of the longest end of the mark with which the log begins: the rest was rotated away."""
        for length in range(min(len(self._mark), len(self.head)), _SURE_BYTES - 1, -1):
            if self.head.startswith(self._mark[-length:]):
                return length
        return None


class SeenLog:
    """What was seen of a log, so that another reading of what is kept goes on behind that.

    A reading that begins as before goes on after as many bytes, if those in front of that place are the last
    that were seen. Any other is displaced: its place is to be searched.

    ``complete``: the first reading began at the beginning, so that bytes can be counted.
    """

    def __init__(self, *, complete: bool) -> None:
        self._count = 0 if complete else None
        self._head = self.mark = b""
        self._to_skip, self._begin, self._skipped = 0, b"", b""
        self.is_empty, self.is_displaced = True, False

    def reread(self) -> bool:
        """The pieces that follow are of another reading, of what is kept. False: search the place first."""
        self.is_displaced = self.is_displaced or self._count is None
        self._to_skip, self._begin, self._skipped = self._count or 0, b"", b""
        return not self.is_displaced

    def place(self, search: MarkSearch) -> bool:
        """Go on where ``mark`` was found. False: it is no longer kept, and all of the reading is new."""
        place = search.place()
        self._count, self.is_displaced = place or 0, False
        self._head = search.head[: self._count]
        if place is None:
            self.mark = b""
        return place is not None

    def feed(self, piece: bytes) -> bytes:
        """What is new in ``piece``; nothing once the reading is displaced."""
        skipped, piece = piece[: self._to_skip], piece[self._to_skip :]
        if skipped and not self._skip(skipped):
            self.is_displaced = True
        if self.is_displaced:
            return b""
        if self._count is not None:
            self._count += len(piece)
            self._head += piece[: _MARK_BYTES - len(self._head)]
        self.mark = (self.mark + piece)[-_MARK_BYTES:]
        self.is_empty = self.is_empty and not piece
        return piece

    def end(self) -> bool:
        """The reading has ended. False: before the place, so it is displaced."""
        self.is_displaced = self.is_displaced or self._to_skip > 0
        return not self.is_displaced

    def _skip(self, piece: bytes) -> bool:
        """Whether the reading is still as before."""
        self._to_skip -= len(piece)
        self._begin += piece[: _MARK_BYTES - len(self._begin)]
        self._skipped = (self._skipped + piece)[-_MARK_BYTES:]
        if not self._head.startswith(self._begin):
            return False
        compared = min(len(self._skipped), len(self.mark))
        return self._to_skip > 0 or self._skipped[-compared:] == self.mark[-compared:]
