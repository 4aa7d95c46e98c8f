"""Tar streams for ``moorage cp``: packs local files, unpacks untrusted streams.

No entry of a stream, and no link from an earlier copy, leads outside the copy's target, and no
stream can fill the memory.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from moorage.common.model.errors import MoorageError

# Name of the copied file or directory in the tar stream.
ROOT = "copy"
_CHUNK_BYTES = 256 * 1024
_ZEROS = bytes(_CHUNK_BYTES)
# Maximum number of bytes that tarfile reads for one header: it keeps long names, pax records and
# sparse maps in memory.
_HEADER_BYTES = 256 * 1024
_PATH_BYTES = 4096
_DEPTH = 128
# Maximum total length of the names and link targets of all entries, in characters.
_NAMES_CHARACTERS = 256 * 1024 * 1024
_SKIPPED_SHOWN = 1000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeArchive(MoorageError):
    """The stream contains more than the requested file or directory, or something different."""

    code = "unsafe-archive"


@dataclass
class CopyStats:
    """``size`` in bytes. ``skipped``: one message per entry that was not copied, up to 1000.
    ``notes``: messages of the sending program, such as about a file that changed."""

    files: int = 0
    size: int = 0
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def skip(self, message: str) -> None:
        if len(self.skipped) < _SKIPPED_SHOWN:
            self.skipped.append(message)


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Limits for a copy. ``size``: bytes of all files. ``entries``: files, directories and
    links."""

    size: int
    entries: int = 1_000_000


Report = Callable[[int], None]


def size_of(source: Path) -> int:
    """Total size of all files below ``source``, in bytes; links are not followed. Raises
    ``OSError``."""
    if not source.is_dir():
        return source.stat().st_size

    total = 0
    for folder, _, files in os.walk(source):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # deleted since it was listed
                continue

    return total


def pack(source: Path, sink: IO[bytes], report: Report) -> CopyStats:
    """Write ``source`` to ``sink``. If ``source`` is a link, its target is packed; links below it
    stay links.

    ``report`` receives the number of bytes of each packed file. Raises ``OSError``.
    """
    copied = CopyStats()
    real = source.resolve(strict=True)

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            copied.skip(f"{entry.name.removeprefix(ROOT + '/')} is not a file, directory or link")
            return None

        entry.uid = 0
        entry.gid = 0
        entry.uname = ""
        entry.gname = ""
        if not entry.isdir():
            copied.files += 1
            copied.size += entry.size
            report(entry.size)

        return entry

    with tarfile.open(
        fileobj=sink, mode="w|", format=tarfile.GNU_FORMAT, bufsize=_CHUNK_BYTES
    ) as tar:
        tar.add(real, ROOT, filter=plain)

    return copied


def parts_of(name: str, top: str) -> tuple[str, ...]:
    """Path of an entry below the copy; () is the copy itself. ``top``: the name of the requested
    path.

    Raises ``UnsafeArchive`` for an entry outside the copy.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    first, below = (parts[:1], parts[1:]) if top != "." else ((top,), parts)
    if name.startswith("/") or ".." in parts or first != (top,) or "\0" in name:
        raise UnsafeArchive(
            f"the copy contains {name!r}, which is not part of {top!r}",
            next_step="nothing was copied",
        )

    return below


def stays_inside(parts: tuple[str, ...], target: str) -> bool:
    """Return whether the link at ``parts`` below the copy points inside the copy.

    Two dots are allowed only at the beginning of the target. There they lead out of real
    directories, because no entry is below a link. After a name, they would lead out of whatever has
    that name, which may be a link, now or after another copy.
    """
    if target.startswith("/") or "\0" in target or not parts or not target:
        return False

    depth = len(parts) - 1
    after_name = False
    for part in target.split("/"):
        if part == "..":
            if after_name or not depth:
                return False
            depth -= 1
        elif part not in ("", "."):
            after_name = True

    return True


class _HeaderGuard:
    """The stream that tarfile reads, with a limit on the bytes read between two entries."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._left = 0

    def expect_header(self) -> None:
        self._left = _HEADER_BYTES + _CHUNK_BYTES

    def expect_data(self, size: int) -> None:
        self._left += size

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise _unsafe(f"a header of more than {_HEADER_BYTES} bytes")
        return piece


def unpack(
    source: IO[bytes], into: Path, top: str, report: Report, *, limits: ArchiveLimits
) -> CopyStats:
    """Unpack a stream into ``into``. It must not exist, and only this process may write to its
    parent.

    ``top`` is as in ``parts_of``; if it is empty, the first entry's name is used. Links are created
    last, so no file is ever written through one. Raises ``OSError`` and ``UnsafeArchive``.
    """
    guard = _HeaderGuard(source)
    unpacking = _Unpacking(into, top, report, limits)
    guard.expect_header()

    try:
        stream: IO[bytes] = guard  # type: ignore[assignment]
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK_BYTES) as tar:
            while (entry := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]
                unpacking.check(entry)
                guard.expect_data(max(entry.size, 0))
                unpacking.add(entry, tar)
                guard.expect_header()
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise UnsafeArchive(f"the copy is an incomplete or invalid tar stream: {error}") from None
    except (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        name = Path(str(error.filename2 or error.filename)).name
        raise _unsafe(f"{name!r} twice, without its directory, or as a link to nothing") from None

    unpacking.finish()
    return unpacking.copied


class _Unpacking:
    """Creates the entries of one stream."""

    def __init__(self, into: Path, top: str, report: Report, limits: ArchiveLimits) -> None:
        self._into = into
        self._top = top
        self._report = report
        self._limits = limits
        self._links: list[tuple[tuple[str, ...], str]] = []
        self._directories: list[tuple[Path, int]] = []
        self._entries = 0
        self._characters = 0
        self.copied = CopyStats()

    def check(self, entry: tarfile.TarInfo) -> None:
        """Raise ``UnsafeArchive`` if the stream exceeds a limit with this entry."""
        self._entries += 1
        self._characters += len(entry.name) + len(entry.linkname)
        if self._entries > self._limits.entries or self._characters > _NAMES_CHARACTERS:
            raise _unsafe(f"more than {self._limits.entries} files, or names that are too long")

        if (
            max(len(os.fsencode(entry.name)), len(os.fsencode(entry.linkname))) > _PATH_BYTES
            or entry.name.count("/") > _DEPTH
        ):
            raise _unsafe(f"a path of more than {_PATH_BYTES} bytes or {_DEPTH} directories")

        if not 0 <= entry.size <= self._limits.size - self.copied.size:
            raise UnsafeArchive(
                f"the copy contains {entry.name[:80]!r} with {entry.size} bytes, but the limit "
                f"for the copy is {self._limits.size} bytes",
                next_step=(
                    "nothing was copied; free disk space, or set --max-size to a higher limit"
                ),
            )

    def add(self, entry: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        """Add an entry. Raises ``OSError`` and ``UnsafeArchive``."""
        self._top = self._top or entry.name.removeprefix("./").partition("/")[0]
        parts = parts_of(entry.name, self._top)
        path = self._into.joinpath(*parts)
        copied = self.copied

        if entry.isdir():
            path.mkdir(mode=0o700, exist_ok=True)
            self._directories.append((path, entry.mode))
        elif entry.isreg():
            data = tar.extractfile(entry)
            assert data is not None
            _write(path, data, entry, self._report)
            copied.files = copied.files + 1
            copied.size = copied.size + entry.size
        elif entry.islnk():
            os.link(
                self._into.joinpath(*parts_of(entry.linkname, self._top)),
                path,
                follow_symlinks=False,
            )
            copied.files += 1
        elif entry.issym() and stays_inside(parts, entry.linkname):
            self._links.append((parts, entry.linkname))
        else:
            cause = f"points to {entry.linkname}" if entry.issym() else "is not a file or directory"
            copied.skip(f"{'/'.join(parts) or self._top} {cause}")

    def finish(self) -> None:
        """Create the links. Raises ``OSError``."""
        for parts, target in self._links:
            try:
                os.symlink(target, self._into.joinpath(*parts))
            except (FileExistsError, FileNotFoundError, NotADirectoryError):
                raise _unsafe(
                    f"the link {'/'.join(parts)!r} twice, or without its directory"
                ) from None

            self.copied.files += 1

        for path, mode in reversed(self._directories):
            path.chmod(mode & 0o777)


def _unsafe(what: str) -> UnsafeArchive:
    return UnsafeArchive(f"the copy contains {what}", next_step="nothing was copied")


def _write(path: Path, data: IO[bytes], entry: tarfile.TarInfo, report: Report) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        while piece := data.read(_CHUNK_BYTES):
            # Sparse files stay sparse: they may be larger than the disk.
            if piece == _ZEROS[: len(piece)]:
                file.seek(len(piece), os.SEEK_CUR)
            else:
                file.write(piece)
            report(len(piece))
        file.truncate()
        file.flush()
        os.utime(fd, (entry.mtime, entry.mtime))
        os.fchmod(fd, entry.mode & 0o777)


def install(unpacked: Path, target: Path) -> None:
    """Move an unpacked copy to ``target``: directories merge, anything else replaces atomically.

    ``target`` is a path without links, except possibly in its last part. A link there, like every
    link below it, is replaced and never followed. Raises ``OSError``.
    """
    with _directory(str(unpacked.parent)) as source, _directory(str(target.parent)) as into:
        move(source, unpacked.name, into, target.name or ".")


def move(source: int, name: str, into: int, new: str) -> None:
    """Like ``install``, but between open directories. Raises ``OSError``."""
    arriving = _mode(source, name)
    present = _mode(into, new)
    if stat.S_ISDIR(arriving) and stat.S_ISDIR(present):
        with _directory(name, source) as inner_source, _directory(new, into) as inner_into:
            for inner in os.listdir(inner_source):
                move(inner_source, inner, inner_into, inner)

        os.rmdir(name, dir_fd=source)
        return

    if stat.S_ISDIR(arriving) and stat.S_ISLNK(present):
        os.unlink(new, dir_fd=into)  # a directory cannot replace it in one step

    os.replace(name, new, src_dir_fd=source, dst_dir_fd=into)


def _mode(directory: int, name: str) -> int:
    """The type and permissions of an entry; 0 if there is none."""
    try:
        return os.lstat(name, dir_fd=directory).st_mode
    except FileNotFoundError:
        return 0


@contextmanager
def _directory(path: str, parent: int | None = None) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)
