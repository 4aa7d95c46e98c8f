"""``python -m tests.containers.prepare``: can this machine run a Docker Engine of the tests' own?

Installs what it takes from Debian's packages where it is not there; starts nothing. Ends with 1, and prints
why, where it cannot be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.containers.engine import lacks

# Packages, and by what is seen that they are here.
_PACKAGES = {"docker.io": "dockerd", "iproute2": "ip", "systemd": "/usr/lib/systemd/systemd"}


def _install() -> str:
    """Why it could not be installed; "" when it is there."""
    missing = [name for name, program in _PACKAGES.items() if not shutil.which(program)]
    if os.geteuid() != 0 or not missing:
        return ""
    if not shutil.which("apt-get"):
        return f"not installed: {', '.join(missing)}, and this is no Debian: install it, then again"
    print(f"installing {', '.join(missing)} with apt-get", file=sys.stderr)
    # Debian's scripts start a service where this file does not forbid it; a file that is there is kept.
    policy = "/usr/sbin/policy-rc.d"
    ours = not os.path.exists(policy)
    if ours:
        with open(policy, "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
        os.chmod(policy, 0o755)
    try:
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        for words in (install, ["apt-get", "update", "-qq"], install):
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            if words is install and done.returncode == 0:
                return ""
        return f"apt-get failed: {done.stderr.strip()[-300:]}"
    finally:
        if ours:
            os.unlink(policy)


if __name__ == "__main__":
    why = _install() or lacks()
    print(why)
    sys.exit(1 if why else 0)
