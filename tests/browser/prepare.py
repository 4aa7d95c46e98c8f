"""``python -m tests.browser.prepare``: is there a Chromium for the tests with a browser?

Installs Debian's where there is none. Ends with 1, and prints why, where it cannot be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

CHROMIUM = "/usr/bin/chromium"
_PACKAGES = ("chromium", "fonts-dejavu-core")


def lacks() -> str:
    """Why there can be no test with a browser; "" when there can."""
    return (
        "" if os.access(CHROMIUM, os.X_OK) else f"there is no {CHROMIUM}: install Debian's package chromium"
    )


def _install() -> str:
    if not lacks() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return lacks()
    print(f"installing {', '.join(_PACKAGES)} with apt-get (110 MB)", file=sys.stderr)
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *_PACKAGES]
    for words in (install, ["apt-get", "update", "-qq"], install):
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if words is install and done.returncode == 0:
            return lacks()
    return f"apt-get failed: {done.stderr.strip()[-300:]}"


if __name__ == "__main__":
    why = _install()
    print(why)
    sys.exit(1 if why else 0)
