"""A Postgres image made without a registry: this machine's programs, their libraries, a shell, and
a start script that supports the variables set by testcontainers."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

POSTGRES_IMAGE = "moorage-test/postgres:1"
_PROGRAMS = ("postgres", "initdb", "psql", "pg_ctl", "pg_isready", "pg_basebackup")
_USER = 999
_DATA = "var/lib/postgresql"
_START = b"""#!/bin/sh
set -e
echo "$POSTGRES_PASSWORD" > /tmp/password
initdb -D /var/lib/postgresql/data -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 \\
  --locale=C --encoding=UTF8 --no-sync
echo "CREATE DATABASE \\"$POSTGRES_DB\\"" | postgres --single -D /var/lib/postgresql/data postgres
echo "host all all all scram-sha-256" >> /var/lib/postgresql/data/pg_hba.conf
exec postgres -D /var/lib/postgresql/data -h 0.0.0.0 -k /tmp -F
"""


def programs() -> Path | None:
    """The directory of Debian's Postgres programs, or None if they are not installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if all((folder / name).exists() for name in _PROGRAMS):
            return folder
    return None


def import_postgres(socket: Path, folder: Path, bin_dir: Path) -> None:
    import docker

    root = folder / "postgres.tar"
    with tarfile.open(root, "w") as tar:
        _write(tar, bin_dir)

    client = docker.APIClient(base_url=f"unix://{socket}", timeout=120)
    name, _, tag = POSTGRES_IMAGE.partition(":")
    changes = [f"ENV PATH={bin_dir}:/bin", f"USER {_USER}", 'CMD ["/bin/sh", "/start"]']
    try:
        client.import_image_from_file(str(root), repository=name, tag=tag, changes=changes)
    finally:
        client.close()
        root.unlink()


def _write(tar: tarfile.TarFile, bin_dir: Path) -> None:
    major = bin_dir.parent.name
    lib = bin_dir.parent / "lib"
    share = Path("/usr/share/postgresql") / major
    names = [bin_dir / name for name in _PROGRAMS]
    for path in names:
        tar.add(path.resolve(), str(path))

    tools = {
        name: Path(found)
        for name in ("sh", "cat", "chmod", "sleep")
        if (found := shutil.which(name))
    }
    for name, path in tools.items():
        tar.add(path.resolve(), f"bin/{name}")

    tar.add(lib, str(lib), filter=lambda entry: None if "/bitcode" in entry.name else entry)
    tar.add(share, str(share))
    output = subprocess.run(
        ["ldd", *map(str, (*names, *tools.values(), *lib.glob("*.so")))],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for library in sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE))):
        tar.add(Path(library).resolve(), library)

    for name, text in {
        "start": _START,
        "etc/passwd": f"root:x:0:0::/:/bin/sh\npostgres:x:{_USER}:{_USER}::/tmp:/bin/sh\n".encode(),
        "etc/group": f"root:x:0:\npostgres:x:{_USER}:\n".encode(),
    }.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        entry.mode = 0o644
        tar.addfile(entry, io.BytesIO(text))

    for folder, owner in (("tmp", 0), (_DATA, _USER)):
        entry = tarfile.TarInfo(folder)
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o1777
        entry.uid = owner
        entry.gid = owner
        tar.addfile(entry)
