"""The virtual machine's file system: a part of this machine's file system, which Linux unpacks into
memory."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path


class Archive:
    """An archive in cpio's ``newc`` format. Every path keeps its location, owner and mode."""

    def __init__(self) -> None:
        # mode, uid, gid, content, device
        self._files: dict[str, tuple[int, int, int, bytes, int]] = {}

    def add(self, path: str) -> None:
        """Add a file or a link, with its parent directories and the target of the link."""
        parent = os.path.dirname(path)
        if path in self._files or path == "/":
            return

        self.add(parent)
        if os.path.realpath(parent) != parent:
            self.add(os.path.join(os.path.realpath(parent), os.path.basename(path)))
            return

        found = os.lstat(path)
        content = b""
        if stat.S_ISLNK(found.st_mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(found.st_mode):
            content = Path(path).read_bytes()

        self._files[path] = found.st_mode, found.st_uid, found.st_gid, content, 0
        if stat.S_ISLNK(found.st_mode) and os.path.exists(path):
            self.add(os.path.normpath(os.path.join(parent, os.readlink(path))))

    def add_tree(self, folder: str, without: Iterable[str] = ()) -> None:
        """``without``: names of directories to leave out."""
        for path, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in without]
            for name in (*folders, *files):
                self.add(os.path.join(path, name))

    def add_programs(self, paths: Iterable[str]) -> None:
        """Programs and libraries, with the libraries that they need."""
        paths = list(paths)
        for path in paths:
            self.add(path)
        needed = subprocess.run(["ldd", *paths], capture_output=True, text=True).stdout
        for word in needed.split():
            if word.startswith("/") and not word.endswith(":"):
                self.add(word)

    def write(self, path: str, content: bytes, mode: int = stat.S_IFREG | 0o755) -> None:
        self._files[path] = mode, 0, 0, content, 0

    def make_directory(self, path: str) -> None:
        self._files.setdefault(path, (stat.S_IFDIR | 0o755, 0, 0, b"", 0))

    def make_console(self) -> None:
        """The device that process 1 writes to."""
        self.make_directory("/dev")
        self._files["/dev/console"] = stat.S_IFCHR | 0o600, 0, 0, b"", os.makedev(5, 1)

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            for number, (name, (mode, uid, gid, content, device)) in enumerate(self._files.items()):
                fields = [number + 1, mode, uid, gid, 1, 0, len(content), 0, 0]
                encoded = os.fsencode(name.lstrip("/")) + b"\0"
                fields += [os.major(device), os.minor(device), len(encoded), 0]
                head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
                file.write(head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4))

            end = (
                b"070701"
                + b"%08X" * 13 % (0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 11, 0)
                + b"TRAILER!!!\0"
            )
            file.write(end + bytes(-len(end) % 4))
