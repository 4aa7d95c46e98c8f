"""Files that are put into a container before it is started, of the user that its program runs as."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from moorage.agent.runtimes.base import File

_ACCOUNTS = "/etc/passwd"


def put_inside(api: Any, container: str, files: Iterable[File]) -> None:
    """Into one that was not started yet. In a thread; raises the SDK's errors."""
    user = str(api.inspect_container(container)["Config"].get("User") or "")
    passwd = ""
    if needs_accounts(user):
        import docker.errors

        with suppress(docker.errors.NoSuchObject):
            pieces, _ = api.get_archive(container, _ACCOUNTS)
            passwd = one_text(b"".join(pieces))
    api.put_archive(container, "/", archive(files, *owner_of(user, passwd)))


def owner_of(user: str, passwd: str) -> tuple[int, int]:
    """``uid, gid`` of what a container is run as: ``user[:group]``, by number or by a name of its accounts. A
    name that is not there is 0: the engine refuses to start it."""
    name, _, group = user.partition(":")
    rows = [line.split(":") for line in passwd.splitlines() if line.count(":") >= 3]
    found = next((row for row in rows if name in (row[0], row[2])), None)
    uid = int(name) if name.isdigit() else int(found[2]) if found else 0
    gid = int(group) if group.isdigit() else int(found[3]) if found else 0
    return uid, gid


def needs_accounts(user: str) -> bool:
    """Whether ``user`` can only be told from the container's own list of accounts."""
    return bool(user) and not all(part.isdigit() for part in user.split(":")[:2])


def archive(files: Iterable[File], uid: int, gid: int) -> bytes:
    """A tar for the root of the container: the files, and the directories that hold them, for their user
    alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        made: set[str] = set()
        for file in files:
            path = PurePosixPath(file.path)
            folder = str(path.parent).lstrip("/")
            if folder not in made:
                made.add(folder)
                _add(tar, folder, 0o700, uid, gid, None)
            _add(tar, str(path).lstrip("/"), file.mode, uid, gid, file.text.encode())
    return buffer.getvalue()


def one_text(tar: bytes) -> str:
    """The text of the one file in a tar; "" where there is none."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        for entry in opened:
            if (content := opened.extractfile(entry)) is not None:
                return content.read().decode(errors="replace")
    return ""


def _add(tar: tarfile.TarFile, name: str, mode: int, uid: int, gid: int, data: bytes | None) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid = mode, uid, gid
    if data is None:
        entry.type = tarfile.DIRTYPE
        return tar.addfile(entry)
    entry.size = len(data)
    return tar.addfile(entry, io.BytesIO(data))
