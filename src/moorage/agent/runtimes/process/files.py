"""Files that the agent writes in a process kernel's working directory.

A kept workspace holds the files of the session's earlier kernels, including links. Links are
replaced, never followed, because the agent may be root, but the workspace's owner is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from moorage.agent.runtimes.base import File

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


_NO_INPUTS: Mapping[str, str] = {}


def write_files(work: Path, files: Iterable[File], inputs: Mapping[str, str] = _NO_INPUTS) -> None:
    """Write ``files``, whose paths are below ``work``, and create links to directories on the node
    at the paths in ``inputs`` below it. Raises ``OSError``, and ``ValueError`` for paths outside
    it."""
    for file in files:
        with _parent(work, Path(file.path).relative_to(work).parts) as (at, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)

            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, file.mode, dir_fd=at), "w") as opened:
                opened.write(file.text)

    for path, source in inputs.items():
        with _parent(work, Path(path).parts) as (at, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
            os.symlink(source, name, dir_fd=at)


def make_directories(work: Path, paths: Iterable[str]) -> None:
    """Create directories below ``work`` unless they exist. Raises ``OSError``."""
    for path in paths:
        with _parent(work, (*Path(path).parts, ".")):
            pass


@contextmanager
def _parent(work: Path, parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Create and open the directory of a path below ``work``. Return it with the file's name
    there."""
    *folders, name = parts
    at = os.open(work, _DIRECTORY)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=at)

            inner = os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner

        yield at, name
    finally:
        os.close(at)
