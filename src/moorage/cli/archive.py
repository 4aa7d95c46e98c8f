"""Tar streams for ``moorage cp``: packs local files, unpacks untrusted streams from sessions."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from moorage.common.model.errors import MoorageError

# Name of the copied file or directory in the tar stream.
ROOT = "copy"
_CHUNK_BYTES = 256 * 1024


class UnsafeArchive(MoorageError):
    """The session's stream holds more or other than the requested file or directory."""

    code = "unsafe-archive"


@dataclass
class CopyStats:
    """``size`` in bytes. ``skipped``: one message per entry that was not copied."""

    files: int = 0
    size: int = 0
    skipped: list[str] = field(default_factory=list)


Report = Callable[[int], None]


def size_of(source: Path) -> int:
    """Bytes of all files below ``source``; links are not followed. Raises ``OSError``."""
    if not source.is_dir():
        return source.stat().st_size
    total = 0
    for folder, _, files in os.walk(source):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # deleted in the meantime
                continue
    return total


def pack(source: Path, sink: IO[bytes], report: Report) -> CopyStats:
    """Write ``source`` to ``sink``. If ``source`` is a link, its target is packed; links below it stay links.

    ``report`` gets the bytes of each packed file. Raises ``OSError``.
    """
    copied = CopyStats()
    real = source.resolve(strict=True)

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            copied.skipped.append(f"{entry.name.removeprefix(ROOT + '/')} is not a file, directory or link")
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        if not entry.isdir():
            copied.files += 1
            copied.size += entry.size
            report(entry.size)
        return entry

    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK_BYTES) as tar:
        tar.add(real, ROOT, filter=plain)
    return copied


def parts_of(name: str, top: str) -> tuple[str, ...]:
    """The path of an entry below the copy; () is the copy itself. ``top``: the name of the requested path.

    Raises ``UnsafeArchive`` for an entry outside of it.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    first, below = (parts[:1], parts[1:]) if top != "." else ((top,), parts)
    if name.startswith("/") or ".." in parts or first != (top,) or "\0" in name:
        raise UnsafeArchive(
            f"the session sent {name!r}, which is not part of {top!r}", next_step="nothing was copied"
        )
    return below


def stays_inside(parts: tuple[str, ...], target: str) -> bool:
    """Return whether the link at ``parts`` below the copy points inside the copy."""
    if target.startswith("/") or not parts:
        return False
    at = list(parts[:-1])
    for part in target.split("/"):
        if part == "..":
            if not at:
                return False
            at.pop()
        elif part not in ("", "."):
            at.append(part)
    return True


def unpack(source: IO[bytes], into: Path, top: str, report: Report) -> CopyStats:
    """Unpack a stream into ``into``, which must not exist and whose parent only this process writes to.

    ``top`` as in ``parts_of``; "" takes the name of the first entry. Links are created last, so no file is
    ever written through one. Raises ``OSError`` and ``UnsafeArchive``.
    """
    copied, links, folders = CopyStats(), list[tuple[tuple[str, ...], str]](), list[tuple[Path, int]]()
    try:
        with tarfile.open(fileobj=source, mode="r|", bufsize=_CHUNK_BYTES) as tar:
            for entry in tar:
                top = top or entry.name.removeprefix("./").partition("/")[0]
                parts = parts_of(entry.name, top)
                path = into.joinpath(*parts)
                if entry.isdir():
                    path.mkdir(mode=0o700, exist_ok=True)
                    folders.append((path, entry.mode))
                elif entry.isreg():
                    data = tar.extractfile(entry)
                    assert data is not None
                    _write(path, data, entry, report)
                    copied.files, copied.size = copied.files + 1, copied.size + entry.size
                elif entry.islnk():
                    os.link(into.joinpath(*parts_of(entry.linkname, top)), path, follow_symlinks=False)
                    copied.files += 1
                elif entry.issym() and stays_inside(parts, entry.linkname):
                    links.append((parts, entry.linkname))
                else:
                    cause = f"points to {entry.linkname}" if entry.issym() else "is not a file or directory"
                    copied.skipped.append(f"{'/'.join(parts) or top} {cause}")
    except tarfile.TarError as error:
        raise UnsafeArchive(f"the session sent an incomplete or invalid tar stream: {error}") from None
    for parts, target in links:
        os.symlink(target, into.joinpath(*parts))
        copied.files += 1
    for path, mode in reversed(folders):
        path.chmod(mode & 0o777)
    return copied


def _write(path: Path, data: IO[bytes], entry: tarfile.TarInfo, report: Report) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        while piece := data.read(_CHUNK_BYTES):
            file.write(piece)
            report(len(piece))
        os.fchmod(fd, entry.mode & 0o777)
    os.utime(path, (entry.mtime, entry.mtime))


def install(unpacked: Path, target: Path) -> None:
    """Move an unpacked copy to ``target``: directories merge, anything else replaces atomically.

    Raises ``OSError``.
    """
    if unpacked.is_dir() and not unpacked.is_symlink() and target.is_dir():
        for inner in unpacked.iterdir():
            install(inner, target / inner.name)
        unpacked.rmdir()
    else:
        os.replace(unpacked, target)
