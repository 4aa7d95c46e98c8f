"""``moorage up`` from an installed wheel, as a platform of tests/e2e/harness.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e.harness import TIMEOUT_S, Platform

from .environments import Environment, outside


class InstalledPlatform(Platform):
    """Its daemons and commands come from ``installation``, which may change from one of them to the
    next."""

    def __init__(self, home: Path, installation: Environment) -> None:
        super().__init__(home)
        self.env = {name: value for name, value in self.env.items() if name in outside()} | {
            name: value for name, value in self.env.items() if name.startswith("MOORAGE_")
        }
        # an installation of the previous release refuses it
        del self.env["MOORAGE_AGENT__PROCESS_DISK"]
        self.installation = installation

    def run(
        self, *arguments: str, timeout: float = TIMEOUT_S, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.installation.program("moorage"), *arguments], env=self.env, cwd=self.home,
            capture_output=True, text=True, timeout=timeout, check=False, input=stdin,
        )  # fmt: skip

    def start(
        self, name: str, *arguments: str, env: dict[str, str] | None = None, known_as: str = ""
    ) -> None:
        known_as = known_as or name
        if name == "up":
            self.forget_addresses()

        with (self.home / f"{known_as}.out").open("ab") as log:
            self._running[known_as] = subprocess.Popen(
                [self.installation.program("moorage"), name, *arguments],
                env=self.env | (env or {}), cwd=self.home, stdout=log, stderr=log,
            )  # fmt: skip

    def must(self, *arguments: str) -> str:
        """Run a command that succeeds."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout
