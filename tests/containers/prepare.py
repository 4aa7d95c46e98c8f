"""Preparation for the container tests: ``python -m tests.containers.prepare``.

Installs missing Debian packages; starts nothing. Exits with 1 and prints the reason if this machine
cannot run a private Docker Engine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from tests.containers.engine import missing_requirement

_PACKAGES = {
    "docker.io": "dockerd",
    "etcd-client": "etcdctl",
    "etcd-server": "etcd",
    "iproute2": "ip",
    "postgresql": "pg_basebackup",
    "systemd": "/usr/lib/systemd/systemd",
    "wireguard-go": "wireguard-go",
    "wireguard-tools": "wg",
}

LOCK_TIMEOUT_S = 300


def install(packages: Mapping[str, str]) -> str:
    """Install those of ``packages`` that are missing; each is given with a program or file whose
    presence shows that it is installed. Returns the reason if the installation fails, or "" on
    success. One caller installs at a time; the others wait, also for a foreign apt-get."""
    with open(
        os.path.join(tempfile.gettempdir(), f"moorage-test-packages-{os.geteuid()}.lock"), "w"
    ) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _install_missing(packages)


def _install_missing(packages: Mapping[str, str]) -> str:
    missing = [name for name, program in packages.items() if not _present(program)]
    if os.geteuid() != 0 or not missing:
        return ""
    if not shutil.which("apt-get"):
        return f"not installed: {', '.join(missing)}, and there is no apt-get: install it and try again"

    print(f"installing {', '.join(missing)} with apt-get", file=sys.stderr)
    # Debian's package scripts start services unless this file forbids it. A file that already
    # exists is kept.
    policy = "/usr/sbin/policy-rc.d"
    ours = not os.path.exists(policy)
    if ours:
        with open(policy, "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
        os.chmod(policy, 0o755)

    try:
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        wait = ("-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_S}")
        install = ["apt-get", *wait, "install", "-y", "-qq", "--no-install-recommends", *missing]
        for argv in (install, ["apt-get", "update", "-qq"], install):
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
            if argv is install and done.returncode == 0:
                return ""

        return f"apt-get failed: {done.stderr.strip()[-300:]}"
    finally:
        if ours:
            os.unlink(policy)


def _present(program: str) -> bool:
    """``program`` is a name on PATH, or a path, which need not be executable."""
    return bool(shutil.which(program)) or (os.path.isabs(program) and os.path.exists(program))


if __name__ == "__main__":
    reason = install(_PACKAGES) or missing_requirement()
    print(reason)
    sys.exit(1 if reason else 0)
