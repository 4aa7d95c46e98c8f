"""``moorage run`` and ``logs -f`` while the manager is killed and the node rotates the log."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from itertools import pairwise

from .harness import Platform, until

PROGRAM = """
import os, time
def say(first, last):
    for number in range(first, last):
        print(f"step {number:05}: loss 0.5", flush=True)
def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.02)
say(0, 100)
wait("{home}/gate-1")
say(100, 2000)
open("{home}/written", "w").close()
wait("{home}/gate-2")
say(2000, 2010)
"""


def numbers(text: str) -> list[int]:
    """The numbers in complete lines: the kept part of a rotated log can start anywhere."""
    return [int(number) for number in re.findall(r"^step (\d{5}): loss 0.5$", text, re.MULTILINE)]


async def test_followed_log_goes_on_behind_a_killed_manager(platform: Platform) -> None:
    home = platform.home
    platform.start("manager")
    await platform.wait_until_ready()
    limits = {"MOORAGE_AGENT__LOG_MAX_BYTES": "8192", "MOORAGE_AGENT__LOG_KEEP_FILES": "1"}
    platform.start("agent", env=limits)

    def follow(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "moorage", *arguments]
        with (
            (home / f"{name}-output").open("wb") as out,
            (home / f"{name}-notes").open("wb") as notes,
        ):
            return subprocess.Popen(command, env=platform.env, stdout=out, stderr=notes)

    async def printed(name: str, last: int) -> None:
        async def has() -> bool:
            return numbers((home / f"{name}-output").read_text())[-1:] == [last]

        await until(f"{name} printed line {last}", has)

    program = PROGRAM.replace("{home}", str(home))
    options = ["--resources", "cpu=0.1", "--resources", "mem=64MiB"]
    ran = follow("run", "run", "--name", "job", *options, "--", sys.executable, "-c", program)
    await printed("run", 99)
    followed = follow("logs", "logs", "-f", "job", "--tail", "5")
    await printed("logs", 99)

    platform.kill("manager")
    (home / "gate-1").touch()
    await until("the program has written", lambda: asyncio.to_thread((home / "written").exists))
    platform.start("manager")
    for name in ("run", "logs"):
        await printed(name, 1999)

    (home / "gate-2").touch()
    for process in (ran, followed):
        assert await asyncio.to_thread(process.wait, 60) == 0

    kept = numbers(platform.run("logs", "job").stdout)
    for name, first in (("run", 0), ("logs", 95)):
        shown = numbers((home / f"{name}-output").read_text())
        gaps = [pair for pair in pairwise(shown) if pair[1] != pair[0] + 1]
        assert (shown[0], shown[-1]) == (first, 2009)
        assert set(kept) <= set(shown)
        assert [before for before, _ in gaps] == [99]
        assert "output of job may be missing here" in (home / f"{name}-notes").read_text()
