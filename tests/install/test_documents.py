"""The documents' blocks that install or start Moorage, typed in a copy of the checkout or with a
wheel.

``tests/e2e/test_documents.py`` types the rest.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks
from tests.e2e.harness import Platform, until

from .environments import Environment, outside

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]
LISTENING = ("MANAGER__LISTEN", "MANAGER__LINK_LISTEN", "PROXY__LISTEN", "PROXY__INTERNAL_LISTEN")
INSTALL_S = 600.0
# The documents' addresses may be in use here.
ELSEWHERE = {f"MOORAGE_{name}": "127.0.0.1:0" for name in LISTENING}


def block(page: str, start: str) -> str:
    """The block of a page with this beginning."""
    [found] = [one.text for one in blocks(ROOT / page) if one.first.startswith(start)]
    return found


def typed(text: str, folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-exc", text], cwd=folder, env=outside(env), text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def checkout(reachable_dir: Path) -> Path:
    """A copy of the files in the working tree that git tracks."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copy = reachable_dir / "checkout"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.mark.parametrize(
    ("page", "start"), [("docs/tutorial.md", "make install"), ("README.md", ".venv/bin/moorage up")]
)
async def test_up_from_the_checkout(checkout: Path, home: Path, page: str, start: str) -> None:
    platform = Platform(home)
    typing = subprocess.Popen(
        ["bash", "-exc", block(page, start)],
        cwd=checkout,
        env=outside(platform.env),
        start_new_session=True,
    )

    async def is_installed() -> bool:
        return (checkout / ".venv/bin/moorage").exists()

    try:
        await until("Moorage is installed", is_installed, INSTALL_S)
        await platform.wait_until_ready()
    finally:
        os.killpg(typing.pid, signal.SIGINT)
        code = typing.wait(60)

    assert code == 0


def test_the_demo_and_what_it_leaves(checkout: Path) -> None:
    line = block("README.md", "make demo").splitlines()[0].partition("#")[0].rstrip()
    try:
        said = typed(f"{line} DEMO_ARGS=--exit", checkout, ELSEWHERE)
        database = Path((checkout / ".moorage/postgres/place").read_text())
    finally:
        typed("make clean", checkout, {})

    assert "the model answered in" in said
    assert "nothing is left running" in said
    assert [
        path for path in (checkout / ".moorage", checkout / ".venv", database) if path.exists()
    ] == []


def test_the_wheel_by_pip_and_pipx(wheel: Path, home: Path) -> None:
    tools = Environment(home / "tools", sys.executable)
    tools.must([sys.executable, "-m", "venv", str(tools.folder)])
    tools.install("pipx")
    text = block("docs/install.md", "WHEEL=")
    documented = text.partition("=")[2].splitlines()[0]
    assert documented == f"$PWD/dist/{wheel.name}"
    paths = {
        "PATH": f"{tools.folder}/bin:{os.environ['PATH']}", "PIPX_HOME": str(home / "pipx"),
        "MOORAGE_HOME": str(home / "state"),
    }  # fmt: skip
    text = text.replace(documented, str(wheel)).replace("moorage demo ", "moorage demo --exit ")
    said = typed(text, home, ELSEWHERE | paths)
    assert "the model answered in" in said
    assert tools.run("moorage", "version").returncode == 0
