"""The head of a tar stream that arrives in pieces: what its first entry is. Its content can then be
passed on without being stored."""

from __future__ import annotations

import re
import tarfile

from moorage.common.archive import ROOT

BLOCK = tarfile.BLOCKSIZE
# The name, and further fields, of an entry can take this many bytes.
_MOST_BYTES = 256 * 1024
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_SIZE = re.compile(rb"(?:\A|\n)\d+ size=(\d{1,19})\n")
_SPARSE = b"GNU.sparse."


class TarHead:
    """Reads the head of a stream. ``fed``: all bytes so far. ``entry``: the first entry once it has
    arrived. ``is_empty``: the stream has no entry."""

    def __init__(self) -> None:
        self.fed = b""
        self.entry: tarfile.TarInfo | None = None
        self.is_empty = False
        self._at = 0
        self._size: int | None = None
        self._sparse = False

    @property
    def content(self) -> bytes:
        """The bytes that follow the head of the first entry."""
        return self.fed[self._at :]

    @property
    def size(self) -> int:
        """Size of the content of the entry in bytes."""
        return self._size or 0

    @property
    def is_file(self) -> bool:
        """Whether the content of the entry is the content of a file."""
        return self.entry is not None and self.entry.isreg() and not self._sparse

    def feed(self, piece: bytes) -> bool:
        """Add bytes. Returns whether the head is complete. Raises ``ValueError`` if the stream is
        no tar stream."""
        self.fed += piece
        while self.entry is None and not self.is_empty:
            if len(self.fed) < self._at + BLOCK:
                return False
            if not self._read_block(self.fed[self._at : self._at + BLOCK]):
                return False

        return True

    def _read_block(self, block: bytes) -> bool:
        """Read a header, with what belongs to it. Returns False if more has to arrive first."""
        if not any(block):
            self.is_empty = True
            return True

        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ValueError(f"no tar stream: {error}") from None

        after = self._at + BLOCK
        if found.type not in (*_LONG, *_EXTENDED):
            self._at = after
            self._sparse = self._sparse or found.type == tarfile.GNUTYPE_SPARSE
            if self._size is None:
                self._size = found.size

            self.entry = found
            return True

        if found.size > _MOST_BYTES or after > 4 * _MOST_BYTES:
            raise ValueError("the head of the tar stream is too long")

        end = after + -(-found.size // BLOCK) * BLOCK
        if len(self.fed) < end:
            return False

        if found.type in _EXTENDED:
            fields = self.fed[after : after + found.size]
            self._sparse = self._sparse or _SPARSE in fields
            if size := _SIZE.search(fields):
                self._size = int(size[1])

        self._at = end
        return True


def file_head(size: int, changed_at: float) -> bytes:
    """The head of a stream with one file of ``size`` bytes, which is called as in copies.
    ``changed_at``: seconds since 1970."""
    entry = tarfile.TarInfo(ROOT)
    entry.size = size
    entry.mode = 0o644
    entry.mtime = int(changed_at)
    return entry.tobuf(tarfile.GNU_FORMAT)


def file_end(size: int) -> bytes:
    """What follows the content of a file of ``size`` bytes at the end of the stream."""
    return bytes(-size % BLOCK + 2 * BLOCK)
