"""Files as a tar stream: packed from here, and unpacked here from a session, which is not trusted."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from moorage.common.model.errors import MoorageError

# What the one thing that is sent is called in its tar.
SENT = "it"
_PIECE = 256 * 1024


class UnsafeArchive(MoorageError):
    """What the session sent is not a plain copy of what was asked for."""

    code = "unsafe-archive"


@dataclass
class Copied:
    files: int = 0
    size: int = 0
    left_out: list[str] = field(default_factory=list)


Tell = Callable[[int], None]


def size_of(source: Path) -> int:
    """Bytes of all files, without following links in it. Raises ``OSError``."""
    if not source.is_dir():
        return source.stat().st_size
    total = 0
    for folder, _, files in os.walk(source):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # it went away meanwhile
                continue
    return total


def pack(source: Path, sink: IO[bytes], tell: Tell) -> Copied:
    """``source`` itself, if it is a link what that means, into ``sink``; links in it as links. ``tell`` is
    told of bytes as they go. Raises ``OSError``."""
    copied = Copied()
    real = source.resolve(strict=True)

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            copied.left_out.append(f"{entry.name.removeprefix(SENT + '/')} is no file, directory or link")
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        if not entry.isdir():
            copied.files += 1
            copied.size += entry.size
            tell(entry.size)
        return entry

    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_PIECE) as tar:
        tar.add(real, SENT, filter=plain)
    return copied


def parts_of(name: str, top: str) -> tuple[str, ...]:
    """Where below the copy an entry belongs; () is the copy itself. ``top``: what was asked for is called.

    Raises ``UnsafeArchive``."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    first, below = (parts[:1], parts[1:]) if top != "." else ((top,), parts)
    if name.startswith("/") or ".." in parts or first != (top,) or "\0" in name:
        raise UnsafeArchive(
            f"the session sent {name!r}, which does not belong to {top!r}", next_step="nothing was copied"
        )
    return below


def stays_inside(parts: tuple[str, ...], target: str) -> bool:
    """Whether a link at ``parts`` of the copy points to somewhere in it."""
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


def unpack(source: IO[bytes], into: Path, top: str, tell: Tell) -> Copied:
    """Into ``into``, which nobody else may write to and which is not there yet. ``top`` as in ``parts_of``;
    "": as the first entry is called. Links are made when all else is there, so nothing is ever written
    through one. Raises ``OSError`` and ``UnsafeArchive``."""
    copied, links, folders = Copied(), list[tuple[tuple[str, ...], str]](), list[tuple[Path, int]]()
    try:
        with tarfile.open(fileobj=source, mode="r|", bufsize=_PIECE) as tar:
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
                    _write(path, data, entry, tell)
                    copied.files, copied.size = copied.files + 1, copied.size + entry.size
                elif entry.islnk():
                    os.link(into.joinpath(*parts_of(entry.linkname, top)), path, follow_symlinks=False)
                    copied.files += 1
                elif entry.issym() and stays_inside(parts, entry.linkname):
                    links.append((parts, entry.linkname))
                else:
                    what = f"points to {entry.linkname}" if entry.issym() else "is no file or directory"
                    copied.left_out.append(f"{'/'.join(parts) or top} {what}")
    except tarfile.TarError as error:
        raise UnsafeArchive(f"what the session sent is no whole tar: {error}") from None
    for parts, target in links:
        os.symlink(target, into.joinpath(*parts))
        copied.files += 1
    for path, mode in reversed(folders):
        path.chmod(mode & 0o777)
    return copied


def _write(path: Path, data: IO[bytes], entry: tarfile.TarInfo, tell: Tell) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        while piece := data.read(_PIECE):
            file.write(piece)
            tell(len(piece))
        os.fchmod(fd, entry.mode & 0o777)
    os.utime(path, (entry.mtime, entry.mtime))


def settle(made: Path, target: Path) -> None:
    """Put what was unpacked where it belongs: a directory joins one that is there, anything else replaces
    what is there at once. Raises ``OSError``."""
    if made.is_dir() and not made.is_symlink() and target.is_dir():
        for inner in made.iterdir():
            settle(inner, target / inner.name)
        made.rmdir()
    else:
        os.replace(made, target)
