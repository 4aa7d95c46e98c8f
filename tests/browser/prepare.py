"""Installs Chromium for the browser tests: ``python -m tests.browser.prepare``.

Uses Debian's package. Exits with 1 and prints the cause if that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

CHROMIUM = "/usr/bin/chromium"
_PACKAGES = ("chromium", "fonts-dejavu-core")


def missing() -> str:
    """The first missing requirement of the browser tests; "" if there is none."""
    return "" if os.access(CHROMIUM, os.X_OK) else f"{CHROMIUM} not found: install Debian's package chromium"


def _install() -> str:
    if not missing() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return missing()
    print(f"installing {', '.join(_PACKAGES)} with apt-get (110 MB)", file=sys.stderr)
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *_PACKAGES]
    for command in (install, ["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if command is install and done.returncode == 0:
            return missing()
    return f"apt-get failed: {done.stderr.strip()[-300:]}"


if __name__ == "__main__":
    cause = _install()
    print(cause)
    sys.exit(1 if cause else 0)
