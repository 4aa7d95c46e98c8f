"""Unix sockets on which a manager listens."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.common.local.proof import short_path
from moorage.common.model.errors import StartupError

_BACKLOG = 1024


@contextmanager
def reserved(path: Path) -> Iterator[str]:
    """Reserve a path, short enough for a socket, at which only this process may listen until it
    leaves the context. Leftovers of a killed process are removed. Raises ``StartupError``."""
    lock = -1
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        found = path.parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StartupError(
                f"{path.parent} is not a directory of this user",
                next_step="remove it, and start again",
            )

        if stat.S_IMODE(found.st_mode) & 0o077:
            raise StartupError(
                f"others may enter {path.parent} (mode {stat.S_IMODE(found.st_mode):04o})",
                next_step=f"chmod 700 {path.parent}, and start again",
            )

        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError as error:
        if lock >= 0:
            os.close(lock)

        if isinstance(error, BlockingIOError):
            raise StartupError(
                f"another manager listens at {path}",
                next_step="give it a separate state directory",
            ) from error

        raise StartupError(
            f"cannot listen at {path}: {error.strerror}",
            next_step=(
                "put the state directory (MOORAGE_HOME) on a file system that supports sockets"
            ),
        ) from error

    try:
        yield short_path(str(path.parent), path.name)
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def listen(path: str) -> socket.socket:
    """Create a socket that listens at a reserved path. Raises ``OSError``."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
