"""Rehearsal of the GPU kit: builds it and runs it from its folder alone, without a network and
without a GPU.

``python -m tests.gpu.rehearsal`` runs it; with ``--check`` it only prints what is missing and exits
with 1. The kit's wheels are for Python 3.12, so it needs that version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
KIT = ROOT / "build" / "gpu-kit"
# The vLLM environment has torch's CPU build; without it the parts that need torch are reported as
# not run.
TORCH = ROOT / ".venv-vllm" / "bin" / "python"
# The command prefix that runs a program in a network namespace without routes, where it reaches
# only itself.
_ALONE = 'ip link set lo up && exec bash "$0" --rehearse'


def main() -> int:
    python = find_python()
    reason = missing_requirement(python)
    if reason or "--check" in sys.argv[1:]:
        print(reason)
        return 1 if reason else 0
    subprocess.run([sys.executable, "-m", "tools.gpu_kit"], cwd=ROOT, check=True)
    environment = {"TORCH_PYTHON": str(TORCH)} | os.environ | {"PYTHON": python}
    command = ["unshare", "--net", "sh", "-c", _ALONE, str(KIT / "run.sh")]
    return subprocess.run(command, cwd=KIT, env=environment, check=False).returncode


def missing_requirement(python: str) -> str:
    """The first missing requirement, or "" if the kit can be rehearsed here."""
    if not python:
        return "there is no Python 3.12: name one in PYTHON"
    if not shutil.which("ip"):
        return "not installed: iproute2"

    alone = subprocess.run(
        ["unshare", "--net", "ip", "link"], capture_output=True, text=True, check=False
    )
    return (
        "" if alone.returncode == 0 else f"no network namespace can be made: {alone.stderr.strip()}"
    )


def find_python() -> str:
    """A working Python 3.12, or "" if there is none."""
    for candidate in _candidates():
        program = [
            candidate,
            "-c",
            "import sys, lzma, venv; print(sys.version_info[:2] == (3, 12))",
        ]
        try:
            answer = subprocess.run(program, capture_output=True, text=True, check=False).stdout
        except OSError:
            continue

        if answer.strip() == "True":
            return candidate

    return ""


def _candidates() -> Iterator[str]:
    yield from filter(None, (os.environ.get("PYTHON"), shutil.which("python3.12"), sys.executable))
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (
        str(python) for python in sorted(versions.glob("3.12*/bin/python3.12"), reverse=True)
    )


if __name__ == "__main__":
    sys.exit(main())
