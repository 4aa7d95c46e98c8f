"""Root file system of Debian trixie with its own Python, and an installation of a wheel in it.

``python -m tests.install.trixie_root`` makes the root with mmdebstrap in ``build/trixie-root``,
where later runs find it, and prints the reason if it cannot. Programs run in it in their own
namespaces: they see neither this machine's files nor a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.containers.prepare import install
from tests.trixie import FOLDER, mirror

from .environments import TIMEOUT_S, UV, outside

ROOT = FOLDER.with_name("trixie-root")
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# The packages that the test needs: those in a minimal trixie, and those that README says to
# install.
PACKAGES = (
    "base-files",
    "base-passwd",
    "coreutils",
    "dash",
    "libstdc++6",
    "libgomp1",
    "python3-venv",
    "tzdata",
)
VERSION = "3.13"
PREFIX = "/opt/moorage"
_ENTER = """set -e
mount --make-rprivate /
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
ip link set lo up
exec chroot "$0" /usr/bin/env -i "$@"
"""
_NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child")


def prepare() -> str:
    """Make the root unless it exists. Returns the reason for a failure, or "" on success."""
    if (ROOT / "complete").exists() and (ROOT / "complete").read_text().split() == [*PACKAGES]:
        return ""
    if os.geteuid() != 0:
        return "a root of Debian trixie needs root"
    if not UV:
        return "uv is missing, which installs for another Python than the one that runs it: pip install uv"
    if reason := install({"mmdebstrap": "mmdebstrap", "iproute2": "ip"}):
        return reason
    if not shutil.which("mmdebstrap") or not (where := mirror()):
        return "this is no Debian with mmdebstrap and a mirror that apt knows"

    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.parent.mkdir(parents=True, exist_ok=True)

    # Unpacked, not configured: that takes a third of the time, and Python needs no more.
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--components=main"]
    command += [f"--include={','.join(PACKAGES)}", "trixie", str(ROOT)]
    done = subprocess.run(
        [*command, f"deb [signed-by={_KEYS}] {where} trixie main"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return f"mmdebstrap failed: {done.stderr.strip()[-300:]}"

    for name in ("passwd", "group"):
        shutil.copy(ROOT / f"usr/share/base-passwd/{name}.master", ROOT / "etc" / name)

    (ROOT / "complete").write_text(" ".join(PACKAGES))
    return ""


@dataclass(frozen=True)
class Trixie:
    """A copy of the root, with a wheel in a virtual environment of its Python 3.13."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path) -> Trixie:
        subprocess.run(["cp", "-a", str(ROOT), str(folder)], check=True)
        made = cls(folder)
        ready = made.run("python3", "-m", "venv", "--without-pip", PREFIX)
        assert ready.returncode == 0, ready.stderr

        # There is no network inside. Scripts would name the interpreter outside the root, so `run`
        # calls the module.
        site = folder / PREFIX.lstrip("/") / f"lib/python{VERSION}/site-packages"
        command = [
            str(UV),
            "pip",
            "install",
            "--quiet",
            "--python-version",
            VERSION,
            "--target",
            str(site),
        ]
        done = subprocess.run(
            [*command, f"{wheel}[all]"],
            env=outside(), cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

        return made

    def run(
        self, *command: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        known = {
            "HOME": "/root",
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
        } | dict(env or {})
        variables = [f"{name}={value}" for name, value in known.items()]
        entered = [*_NAMESPACES, "sh", "-c", _ENTER, str(self.folder), *variables, *command]
        return subprocess.run(
            entered, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    def moorage(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.run(f"{PREFIX}/bin/python", "-m", "moorage", *arguments, env=env)


if __name__ == "__main__":
    problem = prepare()
    print(problem)
    sys.exit(1 if problem else 0)
