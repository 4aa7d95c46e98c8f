"""An etcd image made without a registry, from this machine's programs and their libraries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

ETCD_IMAGE = "moorage-test/etcd:1"


def import_etcd(socket: Path, folder: Path) -> bool:
    """Whether etcd, from which the image is made, is installed."""
    import docker

    program = shutil.which("etcd")
    if program is None:
        return False

    root = folder / "etcd.tar"
    programs = [Path(path) for path in (program, shutil.which("etcdctl")) if path]
    argv = ["ldd", *map(str, programs)]
    libraries = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    with tarfile.open(root, "w") as tar:
        for path in programs:
            tar.add(path.resolve(), f"bin/{path.name}")
        for library in sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", libraries, re.MULTILINE))):
            tar.add(Path(library).resolve(), library)

    client = docker.APIClient(base_url=f"unix://{socket}", timeout=120)
    name, _, tag = ETCD_IMAGE.partition(":")
    url = "http://0.0.0.0:2379"
    command = [
        "/bin/etcd",
        "--data-dir",
        "/data",
        "--listen-client-urls",
        url,
        "--advertise-client-urls",
        url,
    ]
    changes = ["ENV PATH=/bin", f"CMD {json.dumps(command)}"]
    try:
        client.import_image_from_file(str(root), repository=name, tag=tag, changes=changes)
    finally:
        client.close()
        root.unlink()

    return True
