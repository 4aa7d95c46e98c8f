"""Imports of the manager: it starts without modules that few installations or requests need."""

from __future__ import annotations

import subprocess
import sys

LIST_IMPORTS = "import sys, moorage.manager.service; print(*sys.modules)"
SELDOM = {"joserfc", "moorage.manager.api.http.openapi", "moorage.manager.oidc.provider"}


def test_manager_starts_without_what_few_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_IMPORTS],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    imported = set(done.stdout.split())
    assert "moorage.manager.api.app" in imported
    assert not imported & SELDOM
