"""Every command with its defaults, and every example of its help, on a platform of real processes.

``help_table`` names the examples that need what is not here. All others must succeed.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moorage import __main__
from moorage.cli.app import full_root
from tests.documents import moorage_commands

from .harness import EXAMPLES, Platform
from .help_table import ABSENT, BEFORE, FIRST, INPUT, LAST, REPLACED

assert __main__.main  # it adds the commands of the components


def lines_of_the_help() -> dict[str, list[str]]:
    """Command lines by command: the command alone if it needs no argument, then its examples."""
    found: dict[str, list[str]] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        needs_command = hasattr(command, "commands") and not command.invoke_without_command
        is_alias = path[-1:] == ("list",)  # of the noun alone
        bare = not (needs_command or is_alias or any(one.required for one in command.params))
        lines = [" ".join(("moorage", *path))] if bare and path else []
        _, _, examples = (command.help or "").partition("Example")
        lines += re.findall(r"^ {2}(?! )(.+)$", examples, re.MULTILINE)
        found[" ".join(path)] = list(dict.fromkeys(lines))
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(full_root(), ())
    return found


LINES = lines_of_the_help()


def rank(path: str) -> int:
    """The position of a command, so that each finds what it uses."""
    noun = path.partition(" ")[0]
    if noun in FIRST:
        return FIRST.index(noun) - len(FIRST)
    return LAST.index(noun) + 1 if noun in LAST else 0


def test_the_table_names_lines_that_exist() -> None:
    lines = {line for found in LINES.values() for line in found}
    assert set(ABSENT) - lines == set()
    assert set(BEFORE) - lines == set()
    assert len(lines) > 250
    assert {*FIRST, *LAST} <= {path.partition(" ")[0] for path in LINES}


@pytest.mark.timeout(300)
async def test_commands_and_the_examples_of_their_help_run(
    platform: Platform, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, tiny_model)
    monkeypatch.chdir(tmp_path)
    platform.start("up")
    await platform.wait_until_ready()
    failed = await asyncio.to_thread(run_all, platform, tmp_path)

    assert not failed, "\n".join(failed)


def prepare(folder: Path, model: Path) -> None:
    """What a reader has."""
    for name in ("tiny.gguf", "tiny-v2.gguf"):
        shutil.copy(model, folder / name)

    for name in ("train.toml", "pipeline.yaml"):
        shutil.copy(EXAMPLES / name, folder / name)

    pipeline = (EXAMPLES / "pipeline.yaml").read_text()
    (folder / "train.yaml").write_text(pipeline.replace("name: digits", "name: train"))
    (folder / "cluster.yaml").write_text("kind: project\nname: vision\n")
    for name in ("train.py", "token.txt", "id_ed25519", "password.txt", "question.txt"):
        (folder / name).write_text("print('trains')\n")

    (folder / "prompts.jsonl").write_text('{"prompt": "What is a moorage?"}\n')
    (folder / "jobs.jsonl").write_text(
        '{"at_s": 0, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 90}\n'
    )
    (folder / "data").mkdir()
    with tarfile.open(folder / "data.tar", "w") as archive:
        archive.add(folder / "train.py", "train.py")

    (folder / "data.json").write_text("{}")
    (folder / "cron-job.yaml").write_text(
        'name: weekly\ncron: "@weekly"\nsession: {command: ["true"]}\n'
    )
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id_ed25519")]
    (folder / "id_ed25519").unlink()
    subprocess.run(key, check=shutil.which("ssh-keygen") is not None)


def run_all(platform: Platform, folder: Path) -> list[str]:
    """Run every line once, and return what is wrong."""
    saved = platform.run("groups", "describe", "default", "-o", "yaml").stdout
    (folder / "default.yaml").write_text(saved)
    typed = [
        one
        for path in sorted(LINES, key=rank)
        for line in LINES[path]
        if line not in ABSENT
        for one in (*BEFORE.get(line, ()), line)
    ]
    problems = [run_line(platform, folder, line) for line in dict.fromkeys(typed)]
    return [problem for problem in problems if problem]


def run_line(platform: Platform, folder: Path, line: str) -> str:
    """What is wrong with the calls of ``moorage`` in a line; each reads what the one before
    printed."""
    given = INPUT.get(line, "")
    if match := re.search(r"<\s*(\S+)", line):
        given = (folder / match[1]).read_text()

    for example, here in REPLACED.items():
        line = line.replace(example, here)

    line = line.replace("{folder}", str(folder))
    if match := re.search(r"\$\((moorage [^)]+)\)", line):
        line = match[1]

    # a rollout replaces three replicas one after the other, on a node that is nearly full
    timeout_s = 60 if "--wait" in line else 20
    calls = [*moorage_commands(line)]
    for arguments in calls:
        try:
            done = platform.run(*arguments, stdin=given, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return f"$ {line}\nit did not end"
        said = f"{done.stderr[-1000:]}{done.stdout[-500:]}"
        if done.returncode:
            return f"$ {line}\nexit code {done.returncode}\n{said}"
        name = done.stdout.strip()
        if name and " " not in name and f"{name}:" in done.stderr:
            return f"$ {line}\nit prints {name!r} twice\n{said}"
        given = done.stdout

    return "" if calls else f"$ {line}\nno command of moorage"
