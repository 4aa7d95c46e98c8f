"""A wheel of this checkout, for tests of an installation's contents."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path, source: Path = ROOT) -> Path:
    """A wheel of this checkout, or of other sources. Its build backend comes from PyPI, as in every
    build."""
    uv = shutil.which("uv")
    command = [uv, "build", "--wheel", "--quiet", "--out-dir"] if uv else []
    command = command or [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--quiet",
        "--wheel-dir",
    ]
    done = subprocess.run(
        [*command, str(folder), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")

    return wheel
