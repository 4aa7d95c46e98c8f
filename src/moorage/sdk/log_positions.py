"""Positions in logs whose oldest part is rotated away on the node: byte numbers, or the last bytes
seen if an older manager or agent does not report numbers. Pure."""

from __future__ import annotations

_MARK_BYTES = 4096
# A shorter suffix of the mark could also be the start of an unrelated log.
_SURE_BYTES = 16
_NEWLINE = 0x0A


class MarkSearch:
    """Finds the position in a log after ``mark``, the last bytes seen. Feed it the whole stored
    log."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._window = b""
        self._passed = 0
        self._place: int | None = None
        self.head = b""

    @property
    def is_decided(self) -> bool:
        """Whether more pieces would change nothing."""
        return self._place is not None and len(self.head) == _MARK_BYTES

    def feed(self, piece: bytes) -> None:
        self.head += piece[: _MARK_BYTES - len(self.head)]
        if self._place is not None:
            return

        self._window += piece
        at = self._window.find(self._mark)
        if at >= 0:
            self._place = self._passed + at + len(self._mark)
            self._window = b""
            return

        dropped = max(len(self._window) - len(self._mark) + 1, 0)
        self._passed += dropped
        self._window = self._window[dropped:]

    def place(self) -> int | None:
        """The number of bytes before the position, or None if the mark is no longer stored."""
        return self._overlap() if self._place is None else self._place

    def _overlap(self) -> int | None:
        """The length of the mark's longest suffix with which the log starts; the rest was rotated
        away."""
        for length in range(min(len(self._mark), len(self.head)), _SURE_BYTES - 1, -1):
            if self.head.startswith(self._mark[-length:]):
                return length
        return None


class Numbered:
    """A reading that starts at the byte ``begin`` and whose bytes are new from ``first`` on.

    ``timed``: the reading and each of its lines start with a time and a space, which are not bytes
    of the log. ``number``: the next byte's number. ``line``: the number of the first byte of its
    line, if ``timed``.
    """

    def __init__(self, begin: int, first: int, *, timed: bool) -> None:
        self.number = begin
        self.line = begin
        self._first = first
        self._timed = timed
        self._stamp = b""
        self._in_stamp = timed

    @property
    def place(self) -> int:
        """The byte at which another reading continues."""
        return self.line if self._timed else self.number

    def feed(self, piece: bytes) -> bytes:
        """The new bytes of ``piece``."""
        if not self._timed:
            return self._new(piece)

        shown = list[bytes]()
        at = 0
        while at < len(piece):
            if self._in_stamp:
                end = piece.find(b" ", at) + 1
                self._stamp += piece[at : end or len(piece)]
                at = end or len(piece)
                self._in_stamp = not end
                continue

            end = piece.find(b"\n", at) + 1 or len(piece)
            if (new := self._new(piece[at:end])) and self.number - len(new) == self.line:
                shown.append(self._stamp)

            shown.append(new)
            if piece[end - 1] == _NEWLINE:
                self.line = self.number
                self._stamp = b""
                self._in_stamp = True

            at = end

        return b"".join(shown)

    def _new(self, data: bytes) -> bytes:
        new = data[max(self._first - self.number, 0) :]
        self.number += len(data)
        return new


class SeenLog:
    """The part of a log that was read, so that another reading of the stored log can continue after
    it.

    Readings with byte numbers continue after the last number (``begin``). A reading without numbers
    that starts like the previous one continues after the same number of bytes, provided that the
    bytes before that position are the last ones seen. Any other reading is displaced: its position
    must be searched for.

    ``complete``: the first reading started at the beginning of the log, so bytes can be counted.
    ``attempt``: the attempt to which the numbers refer; None if unknown.
    """

    def __init__(self, *, complete: bool) -> None:
        self._count = 0 if complete else None
        self._head = b""
        self.mark = b""
        self._to_skip = 0
        self._begin = b""
        self._skipped = b""
        self._numbered: Numbered | None = None
        self.attempt: int | None = None
        self.is_empty = True
        self.is_displaced = False

    @property
    def place(self) -> int | None:
        """The byte at which the next reading must continue; None if numbers are unknown."""
        return None if self._numbered is None else self._numbered.place

    @property
    def number(self) -> int | None:
        """The number of the next byte; None if unknown."""
        return None if self._numbered is None else self._numbered.number

    def begin(self, offset: int | None, *, timed: bool) -> bool:
        """Start a reading at byte ``offset``, which follows ``place`` if that is known. With None,
        it is a reading of the whole stored log, without numbers. Returns False if bytes before
        ``offset`` were lost without having been read."""
        last = self._numbered
        if offset is None:
            self._numbered = None
            if last is not None and not self.is_empty:
                self.reread()

            return True

        if last is None and not self.is_empty:
            # Earlier readings were matched by their bytes, so this one is as well.
            return True

        first = offset if last is None else last.number
        self._numbered = Numbered(offset, first, timed=timed)
        self._count = None
        return offset <= first

    def reread(self) -> bool:
        """Start another reading of the whole stored log, without numbers. Returns False if its
        position must be searched for first."""
        self.is_displaced = self.is_displaced or self._count is None
        self._to_skip = self._count or 0
        self._begin = b""
        self._skipped = b""
        return not self.is_displaced

    def found(self, search: MarkSearch) -> bool:
        """Continue where ``mark`` was found. Returns False if it is no longer stored, so that the
        whole reading is new."""
        place = search.place()
        self._count = place or 0
        self.is_displaced = False
        self._head = search.head[: self._count]
        if place is None:
            self.mark = b""
        return place is not None

    def feed(self, piece: bytes) -> bytes:
        """The new bytes of ``piece``; none once the reading is displaced."""
        if self._numbered is not None:
            new = self._numbered.feed(piece)
            self.mark = (self.mark + new)[-_MARK_BYTES:]
            self.is_empty = self.is_empty and not new
            return new

        skipped = piece[: self._to_skip]
        piece = piece[self._to_skip :]
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
        """End the reading. Returns False if it ended before the position, so that it is
        displaced."""
        self.is_displaced = self.is_displaced or self._to_skip > 0
        return not self.is_displaced

    def _skip(self, piece: bytes) -> bool:
        """Whether the reading still matches the previous one."""
        self._to_skip -= len(piece)
        self._begin += piece[: _MARK_BYTES - len(self._begin)]
        self._skipped = (self._skipped + piece)[-_MARK_BYTES:]
        if not self._head.startswith(self._begin):
            return False
        compared = min(len(self._skipped), len(self.mark))
        return self._to_skip > 0 or self._skipped[-compared:] == self.mark[-compared:]
