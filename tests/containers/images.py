"""A test image made without a registry: this machine's Python in an otherwise empty image."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

PYTHON_IMAGE = "moorage-test/python:1"
# The C library loads these at run time for name resolution, so ldd does not list them.
_NAME_SERVICES = ("libnss_dns.so.2", "libnss_files.so.2")
# Programs for interactive work.
_PROGRAMS = ("sh", "sleep", "tar", "mkdir", "mv", "cp", "rm", "cat", "stty", "readlink")
_LEFT_OUT = frozenset({"test", "idlelib", "site-packages", "ensurepip", "turtledemo", "tkinter"})
_ENV = {
    "PATH": "/opt/python/bin",
    "LD_LIBRARY_PATH": "/opt/python/lib",
    "PYTHONHOME": "/opt/python",
    "IMAGE_SAYS": "hello",
}
# Labels that an image can forge; they must have no effect.
FORGED = {"moorage.kernel": "00000000-0000-7000-8000-000000000000", "moorage.agent": "forged"}


def changes() -> list[str]:
    """The image configuration, as lines of a Dockerfile."""
    labels = [f'LABEL {name}="{value}"' for name, value in FORGED.items()]
    return [*(f"ENV {name}={value}" for name, value in _ENV.items()), *labels, 'CMD ["python3"]']


def write_python_root(path: Path) -> None:
    """A tar archive of the root file system: /opt/python with its libraries, and /etc/passwd.
    Nothing of this machine's configuration is included (no CA bundle, no package sources)."""
    base = Path(sys.base_prefix)
    version = f"python3.{sys.version_info.minor}"
    lib = base / "lib" / version
    with tarfile.open(path, "w") as tar:
        tar.add(Path(sys.executable).resolve(), "opt/python/bin/python3")
        tar.add(lib, f"opt/python/lib/{version}", filter=_slim)
        programs = {
            name: Path(found).resolve() for name in _PROGRAMS if (found := shutil.which(name))
        }
        for name, program in programs.items():
            tar.add(program, f"opt/python/bin/{name}")

        binaries = [
            Path(sys.executable).resolve(),
            *(lib / "lib-dynload").glob("*.so"),
            *programs.values(),
        ]
        for library in sorted(_libraries(binaries)):
            loader = library.name.startswith("ld-linux")
            # The loader's path is fixed in every program and differs between architectures.
            name = str(library).lstrip("/") if loader else f"opt/python/lib/{library.name}"
            tar.add(library.resolve(), name)

        _text(tar, "etc/passwd", "root:x:0:0::/:/none\n")
        _text(tar, "etc/group", "root:x:0:\n")
        _text(tar, "etc/nsswitch.conf", "hosts: files dns\n")

        for folder in ("tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)


def _slim(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(entry.name.split("/"))
    # Python's own bytecode is kept: without it, every new container would compile what it imports.
    return (
        None
        if parts & _LEFT_OUT or entry.name.endswith((".a", ".opt-1.pyc", ".opt-2.pyc"))
        else entry
    )


def _libraries(binaries: list[Path]) -> Iterator[Path]:
    output = subprocess.run(
        ["ldd", *map(str, binaries)], capture_output=True, text=True, check=False
    ).stdout
    found = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE)}
    yield from {library.name: library for library in found}.values()
    beside = next(library.parent for library in found if library.name.startswith("libc."))
    yield from (beside / name for name in _NAME_SERVICES if (beside / name).exists())


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    entry.mode = 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))


def import_python(socket: Path, folder: Path) -> None:
    """Import the image into the engine at ``socket``. ``folder`` caches the archive for other
    engines."""
    import docker

    root = folder / "python.tar"
    if not root.exists():
        write_python_root(root.with_suffix(f".{os.getpid()}"))
        root.with_suffix(f".{os.getpid()}").rename(root)

    client = docker.APIClient(base_url=f"unix://{socket}", timeout=120)
    name, _, tag = PYTHON_IMAGE.partition(":")
    try:
        client.import_image_from_file(str(root), repository=name, tag=tag, changes=changes())
    finally:
        client.close()
