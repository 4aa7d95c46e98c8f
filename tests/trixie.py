"""Programs from Debian trixie for tests on an older Debian, unpacked below ``build/trixie``.

The packages are from the mirror that apt uses here. Nothing is installed: apt gets its own
directories, and dpkg only unpacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "build" / "trixie"
KUBECTL = FOLDER / "usr/bin/kubectl"
COMPOSE = FOLDER / "usr/libexec/docker/cli-plugins/docker-compose"
DOCKERD = FOLDER / "usr/sbin/dockerd"
CONTAINERD = FOLDER / "usr/bin/containerd"
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def mirror() -> str:
    """The first Debian repository in apt's configuration, or "" without apt."""
    if not shutil.which("apt-get"):
        return ""

    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI) $(ORIGIN)",
        "Created-By: Packages",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return next((line.split()[0] for line in listed.splitlines() if line.endswith(" Debian")), "")


def fetch(programs: dict[str, Path]) -> str:
    """Unpack the packages whose program is missing. ``programs``: the program of each package.
    Returns the reason for a failure, or "" on success."""
    missing = [package for package, program in programs.items() if not program.exists()]
    if not missing:
        return ""
    if not (where := mirror()):
        return "apt knows no repository of Debian here"
    if not _KEYS.exists():
        return f"{_KEYS} is missing: apt install debian-archive-keyring"

    apt = FOLDER / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)

    (apt / "sources.list").write_text(f"deb [signed-by={_KEYS}] {where} trixie main\n")
    # This machine's status would hide packages that it has from elsewhere.
    own = {
        "Dir::Etc::sourcelist": apt / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::status": "/dev/null",
        "Dir::State::lists": apt / "lists", "Dir::Cache": apt / "cache", "APT::Sandbox::User": "root",
    }  # fmt: skip
    options = [f"-o{name}={value}" for name, value in own.items()]
    commands = [
        ["apt-get", "-qq", *options, "update"],
        ["apt-get", "-qq", *options, "download", *missing],
    ]
    for command in commands:
        done = subprocess.run(command, cwd=apt, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"apt-get failed: {done.stderr.strip()[-300:]}"

    for package in missing:
        [archive] = apt.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(FOLDER)], check=True)
        os.unlink(archive)

    return ""
