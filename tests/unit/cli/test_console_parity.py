"""The table of what the web console has of the command line: complete, and backed by tests."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.browser.parity import PARITY, Missing, Performed
from typer._click.core import Command, Context

import moorage.__main__
from moorage.cli import app
from moorage.cli.app import full_root

ROOT = Path(__file__).parents[3]
BROWSER = ROOT / "tests" / "browser"
# Rows that the console may lack. Lower it when one is built.
MOST_MISSING = 0


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    group: Any = command  # typer loads the commands of a group when they are asked for
    if not hasattr(group, "list_commands"):
        yield " ".join(path)
        return

    context = Context(command, info_name="moorage")
    for name in group.list_commands(context):
        yield from commands(group.get_command(context, name), (*path, name))


def test_the_table_has_a_row_for_each_command() -> None:
    assert moorage.__main__.COMMANDS, "importing it adds the daemons"
    assert sorted(PARITY) == sorted(set(commands(typer.main.get_command(app))))


def test_the_console_lacks_no_more_than_before() -> None:
    missing = [command for command, row in PARITY.items() if isinstance(row, Missing)]
    assert len(missing) <= MOST_MISSING, missing


def test_each_tested_row_names_a_function_of_a_drive() -> None:
    """A drive calls its functions by name, so one that no longer exists fails there, and one that
    is not called any more has no second mention."""
    for command, row in PARITY.items():
        if not isinstance(row, Performed):
            continue

        script, function = row.by.split(".")
        text = (BROWSER / f"{script}.py").read_text()
        defined = {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
        assert function in defined, f"{command}: {row.by} does not exist"
        callers = {text, *(p.read_text() for p in BROWSER.glob("drive_*.py"))}
        assert sum(caller.count(function) for caller in callers) > 1, f"{command}: nobody calls it"


def shown_commands() -> list[str]:
    """The commands that empty lists of the console show."""
    sources = (ROOT / "console" / "src").rglob("*.tsx")
    return sorted(
        {
            line
            for path in sources
            for line in re.findall(r'command="(moorage [^"]+)"', path.read_text())
        }
    )


@pytest.mark.parametrize("line", shown_commands())
def test_commands_that_the_console_shows_exist(line: str) -> None:
    _, *words = shlex.split(line)
    command: Any = full_root()
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("moorage", words)
