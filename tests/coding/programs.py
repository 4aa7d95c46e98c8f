"""Claude Code and Codex from npm, next to our own program, for a user of a platform, and their
output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from moorage.demo.model import WORDS
from tests.e2e.harness import Platform

PROGRAMS = Path(__file__).parent / "node_modules" / ".bin"


def moorage(
    platform: Platform, home: Path, *arguments: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """A command that uses the programs from npm."""
    return run(platform, home, sys.executable, "-m", "moorage", *arguments, timeout=timeout)


def run(
    platform: Platform, home: Path, *command: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """A program that finds the programs from npm and our own. Their requests do not leave this
    machine."""
    env = {
        name: value for name, value in platform.env.items() if not name.lower().endswith("_proxy")
    }
    env |= {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1", "HOME": str(home)}
    programs = f"{PROGRAMS}:{Path(sys.executable).parent}"
    env |= {"PATH": f"{programs}:{env['PATH']}", "CODEX_HOME": str(home)}

    return subprocess.run(
        command, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip


def says_words(answer: str) -> bool:
    """Whether these are only words of the demo's model."""
    words = answer.replace(".", " ").split()
    return bool(words) and {*words} <= {*WORDS}
