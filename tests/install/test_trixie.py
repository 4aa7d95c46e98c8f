"""The wheel in Debian trixie with its own Python 3.13: the client, the demo, and a missing
library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import moorage

from . import trixie_root
from .trixie_root import Trixie

pytestmark = [pytest.mark.trixie, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def trixie(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Trixie:
    if reason := trixie_root.prepare():
        pytest.skip(f"NOT TESTED: Debian trixie: {reason}")
    return Trixie.make(tmp_path_factory.mktemp("trixie") / "root", wheel)


def test_the_client_runs_in_trixie(trixie: Trixie) -> None:
    release = (trixie.folder / "etc/os-release").read_text()
    assert "VERSION_CODENAME=trixie" in release
    assert trixie.run("python3", "--version").stdout.startswith("Python 3.13.")
    assert trixie.moorage("version").stdout.strip() == moorage.__version__
    unanswered = trixie.moorage(
        "ps", env={"MOORAGE_URL": "http://127.0.0.1:9", "MOORAGE_INSECURE_LOOPBACK": "1"}
    )
    assert unanswered.stderr.startswith("moorage: no manager answers at http://127.0.0.1:9"), (
        unanswered
    )
    assert "installed: serves GGUF files" in trixie.moorage("doctor").stdout


def test_the_demo_runs_in_trixie(trixie: Trixie) -> None:
    """It needs no network, and its default addresses are free inside."""
    done = trixie.moorage("demo", "--exit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the model answered in" in done.stdout
    assert "nothing is left running" in done.stdout


def test_a_library_that_the_system_lacks_is_named_before_anything_starts(trixie: Trixie) -> None:
    [library] = (trixie.folder / "usr/lib").glob("*/libgomp.so.1")
    hidden = library.with_name("hidden")
    os.rename(library, hidden)

    try:
        refused = trixie.moorage("demo", "--exit")
        doctor = trixie.moorage("doctor").stdout
    finally:
        os.rename(hidden, library)

    assert (refused.returncode, "agent" in refused.stdout) == (1, False), refused
    assert refused.stderr == (
        "moorage: this needs a library that this system lacks: libgomp.so.1; "
        "apt install libgomp1 (Debian, Ubuntu), or dnf install libgomp\n"
    )
    assert "apt install libgomp1" in doctor
