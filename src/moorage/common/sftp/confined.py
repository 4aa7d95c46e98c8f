"""Directory tree that no path can leave, whether by ``..``, a link, or a race with a concurrent
change to the tree.

The operating system's kernel itself resolves each path beneath the root (``openat2``, Linux 5.6);
where this is missing, the path is walked part by part and no link is followed. All operations use
descriptors, and no path is resolved twice.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_OPENAT2 = 437
_BENEATH = 0x08
_NO_MAGICLINKS = 0x02
_O_PATH = getattr(os, "O_PATH", 0)
_NOT_SUPPORTED = (errno.ENOSYS, errno.EPERM, errno.E2BIG)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Root:
    """``path``: the directory's path. ``by_walking``: resolve paths as on a kernel without
    ``openat2``.

    Raises ``OSError``; a path that leads out of the root is a ``PermissionError``."""

    def __init__(self, path: str | bytes, *, by_walking: bool = False) -> None:
        self._fd = os.open(path, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._walks = by_walking or not sys.platform.startswith("linux")
        if not self._walks:
            try:
                os.close(self._openat2(b".", _O_PATH, 0))
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                self._walks = True

    def open(self, path: bytes, flags: int, mode: int = 0) -> int:
        """Open a descriptor. Links are followed as far as they stay beneath the root, except in the
        last part with ``O_NOFOLLOW``."""
        if b"\0" in path:
            raise OSError(errno.EINVAL, "a path contains a NUL character")
        relative = path.lstrip(b"/") or b"."
        flags |= os.O_CLOEXEC | (0 if flags & _O_PATH else os.O_NOCTTY)
        if not self._walks:
            return self._openat2(relative, flags, mode)
        return self._walk(relative, flags, mode)

    def _openat2(self, path: bytes, flags: int, mode: int) -> int:
        how = _How(flags, mode if flags & os.O_CREAT else 0, _BENEATH | _NO_MAGICLINKS)
        for _ in range(8):
            found = self._libc.syscall(
                _OPENAT2, self._fd, path, ctypes.byref(how), ctypes.sizeof(how)
            )
            if found >= 0:
                return int(found)

            code = ctypes.get_errno()
            if code != errno.EAGAIN:  # something was renamed concurrently
                break

        if code in (errno.EXDEV, errno.ELOOP, errno.EAGAIN):
            raise PermissionError(errno.EACCES, "the path leads out of the workspace")

        raise OSError(code, os.strerror(code))

    def _walk(self, path: bytes, flags: int, mode: int) -> int:
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        if b".." in parts:
            raise PermissionError(errno.EACCES, "the path leads out of the workspace")

        fd = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                below = self._step(part, _O_PATH | os.O_DIRECTORY, 0, fd)
                os.close(fd)
                fd = below

            last = parts[-1] if parts else b"."
            found = self._step(last, flags, mode, fd)
        finally:
            os.close(fd)

        return found

    def _step(self, part: bytes, flags: int, mode: int, fd: int) -> int:
        found = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=fd)
        # With O_PATH, the link itself is opened, which only a caller that requested it can use.
        if flags & _O_PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(found).st_mode):
            os.close(found)
            raise PermissionError(errno.EACCES, "links are not followed on this node")
        return found

    @contextmanager
    def found(self, path: bytes, *, follow: bool = True) -> Iterator[int]:
        """Descriptor that names an entry without opening it."""
        fd = self.open(path, _O_PATH | (0 if follow else os.O_NOFOLLOW))
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Directory of a path, and the name in it. Raises ``PermissionError`` for the root
        itself."""
        above, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):
            raise PermissionError(errno.EACCES, "this name cannot be changed")

        fd = self.open(above, _O_PATH | os.O_DIRECTORY)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def open_file(self, path: bytes, flags: int, mode: int) -> int:
        """Open a regular file. Nothing else is opened, because opening devices and pipes has side
        effects."""
        create = flags & os.O_CREAT
        exclusive = flags & os.O_EXCL
        for _ in range(3):
            try:
                with self.found(path) as fd:
                    if exclusive:
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                    return reopen(fd, flags & ~os.O_CREAT)
            except FileNotFoundError:
                if not create:
                    raise

            try:
                return self.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode & 0o777)
            except FileExistsError:
                if exclusive:
                    raise  # the file was created in between, or is a dangling link

        raise PermissionError(errno.EACCES, "the file is a link to nothing")


def reopen(fd: int, flags: int) -> int:
    """Open the regular file that a descriptor of ``Root.found`` names."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return os.open(
        f"/proc/self/fd/{fd}", (flags | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK) & ~os.O_NOFOLLOW
    )


def leads_out(link: bytes, target: bytes) -> bool:
    """Whether a link at this path with this target leads out of the root, judging by its text."""
    if target.startswith(b"/"):
        return True
    depth = len([part for part in link.split(b"/")[:-1] if part not in (b"", b".")])
    for part in target.split(b"/"):
        depth += {b"..": -1, b".": 0, b"": 0}.get(part, 1)
        if depth < 0:
            return True
    return False
