"""How the supervisor of a process kernel finds the program: along the PATH of the kernel, as execvpe does."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.agent.runtimes.process import shim

BECOME = """
import sys
from moorage.agent.runtimes.process import shim
shim._exec(sys.argv[2:], {"PATH": sys.argv[1]})
"""


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """In the first is nothing, in the second what may not be run, in the third a tool."""
    made = [tmp_path / name for name in ("empty", "closed", "open")]
    for folder in made:
        folder.mkdir()
    (made[1] / "tool").write_text("no program")
    (made[2] / "tool").write_text("#!/bin/sh\necho found $0 $1\n")
    (made[2] / "tool").chmod(0o755)
    return made


def became(path: str, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BECOME, path, *argv], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


def test_the_first_that_can_be_run_counts(folders: list[Path]) -> None:
    path = os.pathsep.join(["/no/such/folder", __file__, *map(str, folders)])
    assert became(path, "tool", "x") == f"found {folders[2]}/tool x\n"


def test_a_path_is_taken_as_it_is(folders: list[Path]) -> None:
    assert became("", f"{folders[2]}/tool", "y") == f"found {folders[2]}/tool y\n"


@pytest.mark.parametrize(
    ("name", "number"),
    [("tool", errno.EACCES), ("other", errno.ENOENT), ("/no/such/tool", errno.ENOENT)],
)
def test_why_there_is_none(folders: list[Path], name: str, number: int) -> None:
    path = os.pathsep.join(map(str, folders[:2]))
    words = re.escape(os.strerror(number))
    with pytest.raises(OSError, match=words) as caught:
        shim._exec([name], {"PATH": path})
    with pytest.raises(OSError, match=words) as expected:
        os.execvpe(name, [name], {"PATH": path})
    assert caught.value.errno == expected.value.errno == number
