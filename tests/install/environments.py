"""Fresh environments outside the checkout that contain what a wheel installs, and programs that run
in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

UV = shutil.which("uv")
TIMEOUT_S = 300.0
# Variables that would lead from an environment back into the checkout or into this environment.
_LEADING_BACK = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")


def find_python(version: str) -> str:
    """The interpreter for a version such as 3.13, or "" if this machine has no working one."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for candidate in (shutil.which(name), *sorted(pyenv.glob(f"versions/*/bin/{name}"))):
        if candidate and _runs(str(candidate)):
            return str(candidate)
    return ""


def _runs(python: str) -> bool:
    return (
        subprocess.run([python, "-c", "import ssl"], capture_output=True, check=False).returncode
        == 0
    )


def outside(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without the variables that lead back into the checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEADING_BACK}
    return kept | dict(env or {})


@dataclass(frozen=True)
class Environment:
    """A new virtual environment. ``run`` starts one of its programs outside the checkout."""

    folder: Path
    python: str

    @classmethod
    def make(cls, folder: Path, python: str) -> Environment:
        made = cls(folder, python)
        command = [UV, "venv", "--quiet", "--python", python] if UV else [python, "-m", "venv"]
        made.must([*command, str(folder)])
        return made

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def install(self, *requirements: str, upgrade: bool = False) -> None:
        where = ["--python", self.program("python")]
        # Compiled, as pip does it, because a daemon's first start has a deadline.
        tool = (
            [UV, "pip", "install", "--quiet", "--compile-bytecode", *where]
            if UV
            else [self.program("pip"), "install", "-q"]
        )

        # Two wheels may have the same version, so the file itself is compared.
        again = ["--reinstall-package", "moorage"] if UV else ["--force-reinstall", "--no-deps"]
        self.must([*tool, *(again if upgrade else []), *requirements])

    def uninstall(self) -> None:
        where = ["--python", self.program("python")]
        tool = [UV, "pip", "uninstall", *where] if UV else [self.program("pip"), "uninstall", "-y"]
        self.must([*tool, "moorage"])

    def packages(self) -> set[str]:
        """Names of the installed distributions."""
        listing = (
            "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))"
        )
        return set(self.run("python", "-c", listing).stdout.split())

    def size(self) -> int:
        """Bytes below the environment, without the installers that ``venv`` puts there and uv does
        not."""
        files = (f for f in self.folder.rglob("*") if f.is_file() and not f.is_symlink())
        return sum(f.stat().st_size for f in files if not {"pip", "setuptools"} & {*f.parts})

    def run(
        self, program: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [self.program(program), *arguments]
        return subprocess.run(
            command, env=outside(env), cwd=self.folder, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def must(self, command: list[str]) -> None:
        done = subprocess.run(command, env=outside(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
