"""Copies files into a container before it starts, owned by the user that its program runs as, and
gives that user a name and a home."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from moorage.agent.engines.base import UNNAMED_USER, missing_names
from moorage.agent.runtimes.base import File

_PASSWD = "/etc/passwd"
# A limit is needed because the image determines the size of the file.
_PASSWD_MAX_BYTES = 1024 * 1024


# Name and home of a user that the image does not know.
_USER = UNNAMED_USER
_HOME = "home/moorage"


def unnamed_user(api: Any, container: str) -> dict[str, str]:
    """``USER`` and ``LOGNAME``, if the user of a container that has not been started is a number
    that the image does not know, and neither the image nor the kernel sets them. Call it in a
    thread. Raises the SDK's errors."""
    config = api.inspect_container(container)["Config"]
    found = _unknown_user(api, container, str(config.get("User") or ""))
    if found is None:
        return {}

    entry, _ = found
    env = dict(line.partition("=")[::2] for line in config.get("Env") or ())
    return missing_names(env, entry.partition(":")[0])


def unset_in_image(api: Any, image: str, defaults: Mapping[str, str]) -> dict[str, str]:
    """Those of ``defaults`` that the image does not set. Call it in a thread. Raises the SDK's
    errors."""
    if not defaults:
        return {}

    config = api.inspect_image(image)["Config"] or {}
    given = {line.partition("=")[0] for line in config.get("Env") or ()}
    return {name: value for name, value in defaults.items() if name not in given}


def name_user(api: Any, container: str) -> None:
    """Give the user of a container that has not been started a passwd entry and a home, if the user
    is a number that the image does not know. Without them, its HOME is /, which it cannot write,
    and programs that ask for its name fail. Call it in a thread. Raises the SDK's errors."""
    user = str(api.inspect_container(container)["Config"].get("User") or "")
    if (found := _unknown_user(api, container, user)) is not None:
        entry, passwd = found
        uid = int(entry.split(":")[2])
        api.put_archive(container, "/", _with_home(entry, passwd, uid=uid))


def _unknown_user(api: Any, container: str, user: str) -> tuple[str, str] | None:
    """The missing passwd entry of a container's user and the text of its passwd file; None if the
    user has a name."""
    uid, _, group = user.partition(":")
    if not _is_id(uid) or int(uid) == 0:
        return None

    passwd = _passwd(api, container, missing="root:x:0:0:root:/root:/bin/sh\n")
    # An empty text also stands for what is no file and for a file that is too large.
    entry = missing_entry(passwd, uid, group) if passwd else ""
    return (entry, passwd) if entry else None


def missing_entry(passwd: str, uid: str, group: str) -> str:
    """The passwd entry of a numeric user; "" if there is one."""
    rows = [line.split(":") for line in passwd.splitlines()]
    if any(len(row) > 2 and _is_id(row[2]) and int(row[2]) == int(uid) for row in rows):
        return ""

    taken = any(row[0] == _USER for row in rows)
    name = f"{_USER}-{int(uid)}" if taken else _USER
    # Group 0 is what the engine gives to a user without an entry.
    gid = int(group) if _is_id(group) else 0
    return f"{name}:x:{int(uid)}:{gid}:Moorage:/{_HOME}:/bin/sh"


def _with_home(entry: str, passwd: str, uid: int) -> bytes:
    text = f"{passwd.rstrip(chr(10))}\n{entry}\n"
    gid = int(entry.split(":")[3])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        data = text.encode(errors="surrogateescape")
        _add(tar, _PASSWD.lstrip("/"), mode=0o644, uid=0, gid=0, data=data)
        _add(tar, _HOME, mode=0o700, uid=uid, gid=gid, data=None)

    return buffer.getvalue()


def copy_into_container(api: Any, container: str, files: Iterable[File]) -> None:
    """Copy files into a container that has not been started. Call it in a thread. Raises the SDK's
    errors."""
    user = str(api.inspect_container(container)["Config"].get("User") or "")
    passwd = _passwd(api, container) if needs_passwd(user) else ""
    api.put_archive(container, "/", archive(files, *owner_of(user, passwd)))


def _passwd(api: Any, container: str, missing: str = "") -> str:
    """The text of the container's /etc/passwd; ``missing`` if it has none."""
    import docker.errors

    try:
        pieces, _ = api.get_archive(container, _PASSWD)
        return first_file_text(pieces)
    except docker.errors.NotFound:
        return missing


def owner_of(user: str, passwd: str) -> tuple[int, int]:
    """``uid, gid`` for ``user[:group]``, each a number or a name in ``passwd``. An unknown name
    becomes 0, but the engine refuses to start such a container."""
    name, _, group = user.partition(":")
    rows = [line.split(":") for line in passwd.splitlines() if line.count(":") >= 3]
    found = next((row for row in rows if name in (row[0], row[2])), None)
    known_uid, known_gid = (found[2], found[3]) if found else ("", "")
    uid = name if _is_id(name) else known_uid
    gid = group if _is_id(group) else known_gid
    return int(uid) if _is_id(uid) else 0, int(gid) if _is_id(gid) else 0


def _is_id(text: str) -> bool:
    """Whether it is a numeric id. Images can contain anything, such as digits from other
    scripts."""
    return text.isascii() and text.isdigit() and len(text) <= 10


def needs_passwd(user: str) -> bool:
    """Return whether ``user`` can be resolved only with the container's /etc/passwd."""
    return bool(user) and not all(_is_id(part) for part in user.split(":")[:2])


def archive(files: Iterable[File], uid: int, gid: int) -> bytes:
    """A tar archive for the root directory: the files and their directories, accessible to their
    owner only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        added: set[str] = set()
        for file in files:
            path = PurePosixPath(file.path)
            folder = str(path.parent).lstrip("/")
            if folder not in added:
                added.add(folder)
                _add(tar, folder, mode=0o700, uid=uid, gid=gid, data=None)

            _add(
                tar,
                str(path).lstrip("/"),
                mode=file.mode,
                uid=uid,
                gid=gid,
                data=file.text.encode(),
            )

    return buffer.getvalue()


def first_file_text(pieces: Iterable[bytes]) -> str:
    """The text of the first file in a tar archive; empty if the first entry is not a file or is
    larger than a MiB."""
    start = bytearray()
    for piece in pieces:
        start += piece[: _PASSWD_MAX_BYTES - len(start)]
        if len(start) == _PASSWD_MAX_BYTES:
            break

    with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(start), mode="r|") as opened:
        entry = opened.next()
        if entry is not None and entry.isreg() and 0 <= entry.size <= _PASSWD_MAX_BYTES:
            content = opened.extractfile(entry)
            return content.read().decode(errors="surrogateescape") if content is not None else ""

    return ""


def _add(
    tar: tarfile.TarFile, name: str, mode: int, uid: int, *, gid: int, data: bytes | None
) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    entry.uid = uid
    entry.gid = gid
    if data is None:
        entry.type = tarfile.DIRTYPE
        return tar.addfile(entry)

    entry.size = len(data)
    return tar.addfile(entry, io.BytesIO(data))
