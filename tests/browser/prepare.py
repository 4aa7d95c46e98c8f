"""Installs Chromium for the browser tests: ``python -m tests.browser.prepare``.

Uses Debian's package. Exits with 1 and prints the cause if that fails.
"""

from __future__ import annotations

import os
import sys

from tests.containers.prepare import install

CHROMIUM = "/usr/bin/chromium"
_PACKAGES = {
    "chromium": CHROMIUM,
    "fonts-dejavu-core": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
}


def missing() -> str:
    """The first missing requirement of the browser tests, or "" if all are met."""
    return (
        ""
        if os.access(CHROMIUM, os.X_OK)
        else f"{CHROMIUM} not found: install Debian's package chromium"
    )


if __name__ == "__main__":
    cause = install(_PACKAGES) or missing()
    print(cause)
    sys.exit(1 if cause else 0)
