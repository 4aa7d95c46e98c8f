"""Files in the working directory of a process kernel, written by the agent.

A kept workspace holds what an earlier kernel of the session left there, links included. They are replaced,
never followed: the agent may be root, and the owner of the workspace is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from moorage.agent.runtimes.base import File

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_files(work: Path, files: Iterable[File]) -> None:
    """Write ``files``, whose paths are below ``work``. Raises ``OSError``; ``ValueError`` for other paths."""
    for file in files:
        *folders, name = Path(file.path).relative_to(work).parts
        at = os.open(work, _DIRECTORY)
        try:
            for folder in folders:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=at)
                inner = os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, file.mode, dir_fd=at), "w") as opened:
                opened.write(file.text)
        finally:
            os.close(at)
