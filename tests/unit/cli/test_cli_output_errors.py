"""Outputs that are closed, full or in another encoding, and users without a home: one line, never
a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

MOORAGE = (sys.executable, "-m", "moorage")
COMMANDS = (
    ("--help",),
    ("run", "--help"),
    ("version",),
    ("version", "-o", "json"),
    ("config", "show"),
    ("config", "show", "-o", "yaml"),
    ("contexts",),
    ("models",),
    ("doctor", "-o", "json"),
)


def run(
    *args: str, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*MOORAGE, *args], env=os.environ | (env or {}), timeout=60, **streams)


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_full_output_is_one_line(args: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(*args, stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"moorage: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("closed", ["1", "0 1", "1 2", "2", "0 1 2"])
def test_closed_streams(closed: str) -> None:
    """A closed output is an error. Where the errors go as well, only the exit code is left."""
    shell = f'exec {" ".join(f"{number}>&-" for number in closed.split())}; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *MOORAGE, "version"], capture_output=True, timeout=60
    )
    assert done.returncode == (1 if "1" in closed else 0)
    message = b"moorage: cannot write the output: Bad file descriptor\n"
    assert done.stderr == (message if "1" in closed and "2" not in closed else b"")


def test_notes_are_dropped_where_they_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        assert run("version", "-o", "nonsense", stderr=full).returncode == 2
        assert run("version", stderr=full).returncode == 0


def test_reader_that_has_read_enough_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = run("config", "show", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict", "ascii:surrogateescape"])
def test_characters_that_the_locale_lacks(encoding: str, tmp_path: Path) -> None:
    """Texts get a replacement; JSON and YAML keep the character."""
    env = {"PYTHONIOENCODING": encoding, "MOORAGE_HOME": str(tmp_path)}
    key = tmp_path / "key"
    key.write_text("k")
    url = "https://127.0.0.1:1/→"
    assert (
        run("contexts", "add", "t", "--url", url, "--key-file", str(key), env=env).returncode == 0
    )

    shown = run("contexts", env=env)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b" https://127.0.0.1:1/? " in shown.stdout

    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        found = run("contexts", "-o", form, env=env)
        assert (found.returncode, found.stderr) == (0, b"")
        assert url in [context["url"] for context in read(found.stdout)["contexts"]]


def test_user_without_a_home() -> None:
    """``HOME`` is not set, and the uid has no passwd entry."""
    code = (
        "import os, runpy, sys; os.environ.pop('HOME', None); "
        "import pwd; pwd.getpwuid = lambda uid: (_ for _ in ()).throw(KeyError(uid)); "
        "sys.argv = ['moorage', 'config', 'show']; runpy.run_module('moorage', run_name='__main__')"
    )
    env = {name: value for name, value in os.environ.items() if name != "MOORAGE_HOME"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/.local/share/moorage" in done.stdout
