"""Suggestions for commands that do not exist."""

from __future__ import annotations

import pytest
from invoke import Run
from test_cli_grammar import ROOT, commands, unknown_part

from moorage.cli import suggestions

ASKED = {
    "add", "attach", "copy", "create", "delete", "deploy", "describe", "forward", "get", "kill", "list",
    "login", "ls", "new", "nodes", "remove", "rm", "sacct", "salloc", "show", "status", "stop", "update",
    "watch",
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("worspaces", ["workspaces"]),
        ("session", ["sessions"]),
        ("serv", ["serve"]),
        ("desc", ["describe"]),
        ("st", ["start", "stop"]),
        # Commands from other tools.
        ("cancel", ["stop"]),
        ("cancle", ["stop"]),
        ("scancel", ["stop"]),
        ("kill", ["stop"]),
        ("rm", ["stop"]),
        ("delete", ["stop"]),
        ("ls", ["ps"]),
        ("list", ["ps"]),
        ("squeue", ["ps"]),
        ("sbatch", ["run"]),
        ("help", ["--help"]),
        # In groups.
        ("keys revke", ["keys revoke"]),
        ("keys delete", ["keys revoke"]),
        ("peers rm", ["peers revoke"]),
        ("agents remove", ["agents forget"]),
        ("secrets create", ["secrets set"]),
        ("agent joni", ["agent join"]),
        ("projects members lst", ["projects members list"]),
        # The root verbs act on these.
        ("sessions cancel", ["stop"]),
        ("sessions describe", ["describe"]),
        ("endpoints delete", ["stop"]),
    ],
)
def test_unknown_command_gets_suggestions(moorage: Run, words: str, meant: list[str]) -> None:
    result = moorage(*words.split())
    lines = " or ".join(f"`moorage {line}`" for line in meant)
    word = words.split()[-1]
    assert result.stderr == f"moorage: No such command {word!r}; did you mean {lines}?\n"
    assert result.exit_code == 2


@pytest.mark.parametrize("words", ["qq", "keys qq"])
def test_command_that_is_like_no_other_gets_none(moorage: Run, words: str) -> None:
    result = moorage(*words.split())
    group = " ".join(["moorage", *words.split()[:-1]])
    assert result.stderr == f"moorage: No such command 'qq'; try `{group} --help`\n"


def test_what_is_suggested_exists() -> None:
    groups = [
        ((), ROOT),
        *((path, one) for path, one in commands(ROOT) if hasattr(one, "commands")),
    ]
    for path, group in groups:
        for word in ASKED:
            for line in suggestions.suggestions(word, " ".join(path), list(group.commands)):
                assert unknown_part(line.split()) == "", (path, word, line)
