"""The files of a kernel's log, for readers.

``output.NUMBER`` (``log_writer.py``) starts with the byte of that number. Supervisors started by an
older release write ``kernel.log`` and rename it to ``kernel.log.1``, ``.2`` ... at each rotation,
so their byte numbers are unknown, and a name may change at any moment.

A reader keeps its current file open, because it cannot find its place again by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from moorage.agent.state.log_times import FileTimes, open_times, times_of
from moorage.agent.state.log_writer import OUTPUT, TIMES

_RENAMED = re.compile(r"kernel\.log(?:\.([0-9]+))?")
# A rotation takes far less time than a listing, so one of a few listings is undisturbed.
_ATTEMPTS = 50
_CHUNK = 65_536


class LogFile:
    """An open log file. ``start``: the number of its first byte, None if unknown."""

    def __init__(self, path: Path, start: int | None) -> None:
        self.start = start
        self.folder = path.parent
        self.fd = os.open(path, os.O_RDONLY)
        self.inode = os.fstat(self.fd).st_ino

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    @property
    def is_deleted(self) -> bool:
        """Whether the file has been rotated away since it was opened."""
        return os.fstat(self.fd).st_nlink == 0

    @property
    def end(self) -> int | None:
        """The number of the byte after the file's last one."""
        return None if self.start is None else self.start + self.size

    def read(self, offset: int, size: int = _CHUNK) -> bytes:
        return os.pread(self.fd, size, offset)

    def open_times(self) -> FileTimes | None:
        """Open the file's index of times; None if it has none."""
        if self.start is None:
            return open_times(self.folder, self.inode)
        return times_of(self.folder / f"{TIMES}{self.start:016d}", self.start)

    def last_lines(self, count: int) -> tuple[int, int]:
        """The offset at which the last ``count`` lines start, and the number of lines found (fewer
        in a shorter file)."""
        found = 0
        end = self.size
        position = end
        while position:
            step = min(_CHUNK, position)
            position -= step
            data = self.read(position, step)
            at = len(data)
            while (at := data.rfind(b"\n", 0, at)) >= 0:
                if position + at == end - 1:
                    continue  # the newline at the end of the last line does not start another line

                found += 1
                if found == count:
                    return position + at + 1, found

        return 0, found + (1 if end else 0)


def log_paths(folder: Path) -> list[tuple[Path, Path]]:
    """The files of a log, oldest first, each with the path of its index of times."""
    return [(folder / name, folder / _times_name(name)) for _, name in _names(folder)]


def is_renamed(path: Path) -> bool:
    """Whether the file is from a supervisor that renames its files."""
    return _RENAMED.fullmatch(path.name) is not None


@contextmanager
def open_files(folder: Path) -> Iterator[list[LogFile]]:
    """Open all files of a log, oldest first. Files that are still in the list at the end are
    closed."""
    files = _open_all(folder)
    try:
        yield files
    finally:
        for file in files:
            file.close()


def successor(file: LogFile) -> tuple[LogFile | None, bool]:
    """The file that continues after ``file``, and whether bytes between them are lost. None means
    that there is none yet. Once there is one, ``file`` is complete.
    """
    if file.start is not None:
        return _numbered_successor(file, file.start)
    with open_files(file.folder) as files:
        places = [at for at, other in enumerate(files) if other.inode == file.inode]
        at = places[0] + 1 if places else 0
        return (files.pop(at), not places) if at < len(files) else (None, False)


def _numbered_successor(file: LogFile, start: int) -> tuple[LogFile | None, bool]:
    found = None
    for _ in range(_ATTEMPTS):
        later = [
            number for number, _ in _names(file.folder) if number is not None and number > start
        ]
        if not later:
            return None, False
        # A listing may miss a file that was created during it and show the file after that, so list
        # again.
        if later[0] != file.end and found != later[0]:
            found = later[0]
            continue

        try:
            newer = LogFile(file.folder / f"{OUTPUT}{later[0]:016d}", later[0])
        except FileNotFoundError:
            continue  # already rotated away

        return newer, later[0] != file.end

    return None, False


def _open_all(folder: Path) -> list[LogFile]:
    files = list[LogFile]()
    for _ in range(_ATTEMPTS):
        for file in files:
            file.close()

        files.clear()
        names = _names(folder)
        try:
            for start, name in names:
                files.append(LogFile(folder / name, start))
        except FileNotFoundError:
            continue

        if _is_undisturbed(folder, names, files):
            break

    return files


def _is_undisturbed(
    folder: Path, names: list[tuple[int | None, str]], files: list[LogFile]
) -> bool:
    """Whether nothing was renamed while the files were being opened, and no file between two others
    was missed."""
    if any(a.end != b.start for a, b in pairwise(files) if a.start is not None):
        return _names(folder) == names
    if not files or files[0].start is not None:
        return True

    try:
        inodes = [(folder / name).stat().st_ino for _, name in names]
    except FileNotFoundError:
        return False

    return inodes == [file.inode for file in files] and _names(folder) == names


def _names(folder: Path) -> list[tuple[int | None, str]]:
    """The files' names, oldest first, each with the number of its first byte. A job that its site
    reruns may have files of both kinds."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []

    renamed = sorted(
        ((int(match[1] or 0), name) for name in names if (match := _RENAMED.fullmatch(name))),
        reverse=True,
    )
    numbered = sorted(
        (int(number), name)
        for name in names
        if name.startswith(OUTPUT) and (number := name[len(OUTPUT) :]).isdigit()
    )
    return [(None, name) for _, name in renamed] + [*numbered]


def _times_name(name: str) -> str:
    return name.replace("kernel.log", "kernel.times").replace(OUTPUT, TIMES)
