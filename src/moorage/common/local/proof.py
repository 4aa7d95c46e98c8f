"""Proof of the identity of a server on this host.

Any user can listen on a free loopback port. A Unix socket can be created only by users who may
write to its directory, and the operating system's kernel reports the user who listens. Both are
checked before anything is sent.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from moorage.common.model.errors import ConfigError

_MOST_LINKS = 40
# Length of sun_path, without the NUL at its end.
_LONGEST_PATH = 107
_CREDENTIALS = struct.Struct("3i")
_ROOT = 0


class Unproven(ConfigError):
    """The listener cannot be verified as the manager."""


@dataclass(frozen=True, slots=True)
class ProofStep:
    """A directory or link on the path to a socket.

    ``private_group``: its group has no members other than its owner. ``in_shared``: anybody can
    create entries next to it, and only their owners can replace them (a sticky directory, such as
    ``/tmp``).
    """

    path: str
    uid: int
    mode: int
    private_group: bool = False
    in_shared: bool = False

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def others_may_write(self) -> bool:
        group = bool(self.mode & stat.S_IWGRP) and not self.private_group
        return not self.is_link and (group or bool(self.mode & stat.S_IWOTH))

    @property
    def is_shared(self) -> bool:
        return self.others_may_write and bool(self.mode & stat.S_ISVTX)


def find_problem(steps: Sequence[ProofStep], own_uid: int) -> str:
    """Explain why another user can create a socket in the directory of the last step; "" if only
    root, its owner and this user can.

    ``steps``: from the root."""
    owner = steps[-1].uid
    for step in steps:
        # In a shared directory, the first to create a name owns it.
        allowed = {_ROOT, own_uid} if step.in_shared else {_ROOT, own_uid, owner}
        if step.uid not in allowed:
            return f"{step.path} belongs to {user_name(step.uid)}"
        if step.others_may_write and not (step.is_shared and step is not steps[-1]):
            return f"others may write to {step.path} (mode {stat.S_IMODE(step.mode):04o})"

    return ""


def connect(path: str, *, timeout_s: float | None) -> socket.socket:
    """Connect to the socket ``path`` after verifying its server: only root, this user or the owner
    of its directory could have created it, and one of them listens. If ``timeout_s`` is 0, it does
    not wait.

    Raises ``Unproven``, and ``OSError`` if nothing listens there.
    """
    directory, name = os.path.split(path)
    steps = list(_steps_to(directory))
    own_uid = os.geteuid()
    if problem := find_problem(steps, own_uid):
        raise Unproven(
            f"nothing secret is sent to {path}: {problem}, so another user may listen there",
            next_step=(
                "let only its owner write to that directory (chmod go-w), or move the state "
                "directory"
            ),
        )

    last = steps[-1]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(short_path(last.path, name))
        uid = _peer_uid(connection)
        if uid not in (_ROOT, own_uid, last.uid):
            raise Unproven(
                f"nothing secret is sent to {path}: {user_name(uid)} listens there, and the "
                f"directory belongs to {user_name(last.uid)}",
                next_step=(
                    "find out which program that is (`ss -xlp`), stop it, and start the "
                    "manager again"
                ),
            )
    except BaseException:
        connection.close()
        raise

    return connection


def short_path(directory: str, name: str) -> str:
    """Path at which this process reaches a socket in ``directory``. If the actual path is longer
    than the system allows for a socket, the directory stays open until the process ends."""
    path = os.path.join(directory, name)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return path

    found = os.stat(directory)
    identity = found.st_dev, found.st_ino
    if identity not in _OPEN:
        _OPEN[identity] = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    return f"/proc/self/fd/{_OPEN[identity]}/{name}"


_OPEN: dict[tuple[int, int], int] = {}
"""Descriptors of directories with long paths, by device and inode."""


def user_name(uid: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def _peer_uid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


def _steps_to(directory: str) -> Iterator[ProofStep]:
    """Directories and links on the way to ``directory``, whose path is absolute; the last one is
    the directory itself. Raises ``OSError``."""
    root = _step("/", in_shared=False)
    yield root

    # Steps from the root down to the current directory.
    way = [root]
    pending = [part for part in reversed(directory.split("/")) if part not in ("", ".")]
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            way = way[:-1] or way
            continue

        step = _step(os.path.join(way[-1].path, part), in_shared=way[-1].is_shared)
        yield step
        if not step.is_link:
            way.append(step)
            continue

        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), directory)

        target = os.readlink(step.path)
        if target.startswith("/"):
            way = [root]

        pending += [part for part in reversed(target.split("/")) if part not in ("", ".")]

    # A link may lead back up to the directory that was the last step before it.
    yield way[-1]


def _step(path: str, *, in_shared: bool) -> ProofStep:
    found = os.lstat(path)
    writable = bool(found.st_mode & stat.S_IWGRP)
    private = writable and _is_private_group(found.st_uid, found.st_gid)
    return ProofStep(
        path, found.st_uid, mode=found.st_mode, private_group=private, in_shared=in_shared
    )


def _is_private_group(uid: int, gid: int) -> bool:
    """Whether the group belongs to that user alone; many systems create such a group for each
    user."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(gid)
    except KeyError:
        return False

    if user.pw_gid != gid or user.pw_name != group.gr_name:
        return False

    return set(group.gr_mem) <= {user.pw_name}
