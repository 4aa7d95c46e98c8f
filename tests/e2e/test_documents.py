"""The shell blocks of the documents, typed into a shell beside a platform of real processes.

Addresses are replaced, files that a reader would have are created, and ``document_table`` names the
lines that need something unavailable here. Every other line must succeed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT, SHELLS, Block, blocks, pages

from .document_table import PAGES, RUN_ELSEWHERE, Page
from .harness import Platform, kernels_below, until

TIMEOUT_S = 100.0
SHELL_BLOCKS = {
    name: found
    for page in pages()
    if (name := str(page.relative_to(ROOT))) not in RUN_ELSEWHERE
    and (found := [block for block in blocks(page) if block.language in SHELLS])
}


@pytest.fixture(scope="module")
def reader(reachable_dir: Path, tiny_model: Path) -> Iterator[tuple[Platform, Path]]:
    """A platform whose node accepts GPU sessions on its CPUs, and the home of the user who types
    the commands."""
    home = Path(tempfile.mkdtemp(prefix="up-", dir=reachable_dir))
    home.chmod(0o711)
    running = Platform(home)
    running.env |= {
        "MOORAGE_AGENT__INVENTORY": "auto+cpu-slots:4+cpu-overcommit:8",
        "MOORAGE_AGENT__PROCESS_ENV": '["JUPYTER_PATH"]',
        "JUPYTER_PATH": f"{sys.prefix}/share/jupyter",
    }
    running.start("up")
    folder = Path(tempfile.mkdtemp(prefix="reader-", dir=reachable_dir))
    (folder / "models").mkdir()
    shutil.copy(tiny_model, folder / "models/tiny-v2.gguf")
    (folder / "backups").mkdir()
    (folder / ".ssh").mkdir()
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / ".ssh/id_ed25519")]
    subprocess.run(key, check=shutil.which("ssh-keygen") is not None)
    program = folder / "bin" / "moorage"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m moorage "$@"\n')
    program.chmod(0o755)
    state = folder / ".local/share/moorage"
    state.parent.mkdir(parents=True)
    state.symlink_to(home)
    yield running, folder
    running.close()
    assert kernels_below(home) == {}


def absent_lines(block: Block, page: Page) -> list[str]:
    """The entries of the table that apply to a block."""
    starts = [line.strip() for line in block.text.splitlines()]
    whole = [
        key
        for key in page.absent
        if block.first.startswith(key.removeprefix("block:")) and "block:" in key
    ]
    return whole or [key for key in page.absent if any(line.startswith(key) for line in starts)]


def script_of(block: Block, page: Page) -> str:
    """The block without the lines that cannot run here."""
    absent = absent_lines(block, page)
    if any(key.startswith("block:") for key in absent):
        return ""

    kept: list[str] = []
    is_left_out = False
    for line in block.text.splitlines():
        is_left_out = is_left_out or line.strip().startswith(tuple(absent) or "\0")
        if not is_left_out:
            kept.append(line)
        # A line that ends in a backslash continues in the next one.
        is_left_out = is_left_out and line.endswith("\\")
    return "\n".join(kept)


def test_the_table_names_lines_that_exist() -> None:
    named = {(name, key) for name, page in PAGES.items() for key in page.absent}
    used = {
        (name, key)
        for name, found in SHELL_BLOCKS.items()
        for block in found
        for key in absent_lines(block, PAGES.get(name, Page()))
    }
    assert named == used
    assert {*SHELL_BLOCKS} == {*PAGES}
    assert all((ROOT / path).exists() for path in RUN_ELSEWHERE.values())


def runs_here(name: str) -> bool:
    """Whether a page has a line that no entry of the table leaves out."""
    # Run nothing from a page that is not in the table: it may change this machine.
    return name in PAGES and any(script_of(block, PAGES[name]) for block in SHELL_BLOCKS[name])


@pytest.mark.parametrize("name", [*filter(runs_here, SHELL_BLOCKS)])
@pytest.mark.timeout(240)
async def test_the_blocks_of_a_page_run(reader: tuple[Platform, Path], name: str) -> None:
    platform, home = reader
    page = PAGES[name]
    folder = working_directory(home, name)
    texts = [script_of(block, page) for block in SHELL_BLOCKS[name]]

    # The first page also waits for a new database.
    key = platform.home / "admin-key"
    await until("the platform has started", lambda: asyncio.to_thread(key.exists), 120)
    await platform.wait_until_ready()
    failed = []
    try:
        for block, text in [(None, page.before), *zip(SHELL_BLOCKS[name], texts, strict=True)]:
            done = await asyncio.to_thread(type_into_shell, platform, home, folder, text)
            where = f"{name}:{block.line}" if block else f"{name}, before"
            failed += [f"{where}\n{done.stdout[-3000:]}"] if done.returncode else []
    finally:
        for noun, verb in (("ps", "stop"), ("endpoints", "stop")):
            alive = platform.run(noun, "-o", "name").stdout.split()
            _ = alive and platform.run(verb, *alive)

    assert not failed, "\n".join(failed)


def working_directory(home: Path, name: str) -> Path:
    """The directory in which a page is typed, with the files that its reader has."""
    folder = home / name.replace("/", "-")
    folder.mkdir()
    for file in PAGES[name].files:
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".gguf":
            shutil.copy(home / "models/tiny-v2.gguf", target)
        elif target.suffix:
            target.write_text("print('trains')\n")
        else:
            target.mkdir()

    return folder


def type_into_shell(
    platform: Platform, home: Path, folder: Path, text: str
) -> subprocess.CompletedProcess[str]:
    """Run commands on a terminal, because ``exec -it`` needs one. A shell that they open ends at
    once."""
    for example, here in {
        "http://127.0.0.1:8800": platform.openai_url.removesuffix("/v1"),
        "http://127.0.0.1:8700": platform.url,
        " /models/": f" {home}/models/",
        "=/models/": f"={home}/models/",
        '"/models/': f'"{home}/models/',
        "/backups/": f"{home}/backups/",
        "$(date +%F)": "2030-01-31",
        # It asks, and discards anything typed before.
        "secrets set openai\n": "secrets set openai < token.txt\n",
        # Simulated minutes, in seconds.
        "--jobs 2000": "--jobs 40",
        "--jobs 1500": "--jobs 40",
        "--like gpu-03": "--like node-1",
    }.items():
        text = text.replace(example, here)

    env = platform.env | {
        "HOME": str(home),
        "PATH": f"{home}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = folder / "block.sh"
    script.write_text(f"set -ex\n{text}\n")
    command = [
        "script",
        "--quiet",
        "--return",
        "--flush",
        "--command",
        f"bash {script}",
        "/dev/null",
    ]
    typed, ours = os.pipe()
    os.write(ours, b"exit\n")

    try:
        # Its input stays open, because `script` waits for two seconds when its input ends.
        return subprocess.run(
            command, cwd=folder, env=env, stdin=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    finally:
        os.close(typed)
        os.close(ours)
