"""The shim's program lookup, which follows the kernel's PATH like ``os.execvpe``."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.agent.runtimes.process import shim_system

EXEC = """
import sys
from moorage.agent.runtimes.process import shim_system
shim_system.exec_program(sys.argv[2:], {"PATH": sys.argv[1]})
"""


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """An empty directory, one with a file that is not executable, and one with a program."""
    folders = [tmp_path / name for name in ("empty", "closed", "open")]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "tool").write_text("no program")
    (folders[2] / "tool").write_text("#!/bin/sh\necho found $0 $1\n")
    (folders[2] / "tool").chmod(0o755)
    return folders


def exec_output(path: str, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", EXEC, path, *argv],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout


def test_first_executable_on_the_path_is_run(folders: list[Path]) -> None:
    path = os.pathsep.join(["/no/such/folder", __file__, *map(str, folders)])
    assert exec_output(path, "tool", "x") == f"found {folders[2]}/tool x\n"


def test_program_with_a_slash_is_not_looked_up(folders: list[Path]) -> None:
    assert exec_output("", f"{folders[2]}/tool", "y") == f"found {folders[2]}/tool y\n"


@pytest.mark.parametrize(
    ("name", "number"),
    [("tool", errno.EACCES), ("other", errno.ENOENT), ("/no/such/tool", errno.ENOENT)],
)
def test_errors_match_execvpe(folders: list[Path], name: str, number: int) -> None:
    path = os.pathsep.join(map(str, folders[:2]))
    message = re.escape(os.strerror(number))
    with pytest.raises(OSError, match=message) as caught:
        shim_system.exec_program([name], {"PATH": path})
    with pytest.raises(OSError, match=message) as expected:
        os.execvpe(name, [name], {"PATH": path})
    assert caught.value.errno == expected.value.errno == number


def test_a_small_file_is_written_into_the_space_that_was_reserved_for_it(tmp_path: Path) -> None:
    path = tmp_path / "exit"
    shim_system.reserve(str(path))
    reserved = tmp_path / "exit.reserved"
    assert (reserved.stat().st_size, reserved.stat().st_blocks > 0) == (
        shim_system.RESERVED_BYTES,
        True,
    )
    inode = reserved.stat().st_ino
    shim_system.replace(str(path), '{"code": 0}')
    assert (path.read_text(), path.stat().st_ino) == ('{"code": 0}', inode)
    assert os.listdir(tmp_path) == ["exit"]
    shim_system.replace(str(path), "again")
    assert path.read_text() == "again"
