"""Recorder of the terminal session in README: ``python docs/record.py FILE.svg``.

It starts a platform in an empty home, runs the commands below as a new user would, and draws
what they printed, with the seconds that each took. Nothing is edited: a command that fails ends it.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from moorage.demo.model import write_tiny_gguf

COLUMNS = 120
COMMANDS = (
    "moorage serve tiny.gguf",
    "moorage chat tiny 'What is a moorage?' --max-tokens 12",
    "moorage run -- python3 -c 'print(6 * 7)'",
    "moorage start --name dev",
    "moorage exec dev -- uname -s",
    "moorage run --name big -d --gpus 8 -- true",
    "moorage why big",
    "moorage ps",
    "moorage stop big dev tiny",
)
READY_S = 180.0
COMMAND_S = 120.0
# Without the web font of rich's own template: pictures in a README load nothing.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def output_of(command: str, folder: Path, env: dict[str, str]) -> str:
    """What ``command`` prints on a terminal that shows no progress. Raises ``SystemExit`` if it
    fails."""
    parent, child = pty.openpty()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=folder, env=env, stdout=child, stderr=errors
        )
        os.close(child)
        output = _read_to_the_end(parent)
        os.close(parent)
        if process.wait(COMMAND_S) != 0:
            errors.seek(0)
            sys.exit(f"{command!r} failed with {process.returncode}: {errors.read().decode()}")

    return output.decode().replace("\r\n", "\n")


def _read_to_the_end(terminal: int) -> bytes:
    pieces: list[bytes] = []
    until = time.monotonic() + COMMAND_S
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                pieces.append(os.read(terminal, 65_536))
            except OSError:  # the last program closed it
                break
    return b"".join(pieces)


@contextmanager
def platform(folder: Path, env: dict[str, str]) -> Iterator[float]:
    """``moorage up`` in an empty home. Yields the seconds until it was ready."""
    began = time.monotonic()
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen(["moorage", "up"], cwd=folder, env=env, stdout=log, stderr=log)

    try:
        while subprocess.run(
            ["moorage", "agents"], env=env, capture_output=True, check=False
        ).returncode:
            if up.poll() is not None or time.monotonic() - began > READY_S:
                sys.exit(f"moorage up is not ready: {(folder / 'up.log').read_text()}")
            time.sleep(0.2)

        yield time.monotonic() - began
    finally:
        up.terminate()
        up.wait(READY_S)


def record(target: Path) -> None:
    """Draw the session as ``target``. Raises ``SystemExit`` if a command fails."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        _record(target, Path(folder))


def _record(target: Path, folder: Path) -> None:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": programs, "HOME": str(folder), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    write_tiny_gguf(folder / "tiny.gguf")
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)

    def show(command: str, took_s: float, output: str) -> None:
        line = Text(f"$ {command}", style="bold")
        line.append(f"{took_s:.1f} s".rjust(COLUMNS - len(line.plain)), style="dim not bold")
        console.print(line)
        console.print(Text.from_ansi(output.rstrip("\n")))

    with platform(folder, env) as ready_s:
        show("moorage up &", ready_s, "")
        for command in COMMANDS:
            began = time.monotonic()
            output = output_of(command, folder, env)
            show(command, time.monotonic() - began, output)

    target.write_text(
        console.export_svg(title="moorage", theme=MONOKAI, code_format=SVG, unique_id="moorage")
    )


if __name__ == "__main__":
    record(Path(sys.argv[1]))
