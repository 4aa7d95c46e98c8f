"""Grammar of the command line, checked on the complete command tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from invoke import Run

from moorage import __main__
from moorage.cli.app import full_root
from moorage.cli.command_groups import COMMAND_GROUPS
from moorage.cli.context import SHARED, Output
from moorage.cli.help_pages import is_global

# Commands that act on sessions and endpoints, or run the platform.
ROOT_VERBS = {
    "mcp",
    "apply", "audit", "bench", "chat", "claude", "codex", "cp", "demo", "describe", "doctor", 
    "events", "exec", "extend", "label", "load", "logs",
    "open", "plan",
    "port-forward", "ps", "reload",
    "rename", "requeue", "resume", "run", "scale", "serve", "simulate", "ssh", "start", "stop",
    "suspend", "top", "up", "update", "usage", "version", "why",
}  # fmt: skip
# Daemons, and the commands that set them up on their node.
DAEMONS = {"manager": set[str](), "agent": {"join", "doctor", "install-engine"}, "proxy": {"join"}}
# Subjects that exist once per installation, and words without a plural.
SINGULAR = {
    "cron": {
        "create",
        "list",
        "describe",
        "update",
        "suspend",
        "resume",
        "trigger",
        "delete",
    },
    "config": {"show", "set", "unset", "history", "rollback"},
    "db": {
        "upgrade",
        "downgrade",
        "check",
        "backup",
        "restore",
        "verify",
        "recover",
        "rotate-secrets-key",
    },
    "scheduler": {"simulate", "log", "replay"},
    "upgrade": {"plan"},
    "rollout": {"status", "history", "undo", "promote", "canary"},
}
NOUNS = {
    "agents", "budgets", "contexts", "endpoints",
    "groups", "join-tokens", "keys", "limits", "managers", "models", "notifications",
    "peers", "pipelines",
    "prices", "projects", "qos", "quotas",
    "secrets", "sessions", "tasks", "templates", "users", "workspaces",
}  # fmt: skip
NOUN_VERBS = {
    "add", "archive", "remove", "restore", "use",
    "add-ssh", "list-ssh", "remove-ssh",
    "cordon", "create", "delete", "describe", "drain", "forget", "history", "list", "load",
    "log", "logs", "members",
    "passwd", "rename", "retry", "revoke", "rotate", "rotate-ca", "set", "show", "stop", "submit",
    "test", "uncordon", "update", "versions",
}  # fmt: skip
DURATIONS = {
    "--before-end", "--coalesce", "--die-every", "--disconnect-every", "--every", "--for", "--grace",
    "--idle-timeout", "--last", "--lifetime", "--max-time", "--ramp", "--start-deadline",
    "--task-timeout", "--time-limit", "--timeout", "--waiting",
}  # fmt: skip


assert __main__.main  # it adds the commands of the components
ROOT: Any = full_root()


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group below ``command``, with its path."""
    for name, inner in getattr(command, "commands", {}).items():
        yield (*path, name), inner
        yield from commands(inner, (*path, name))


def test_root_has_short_verbs_daemons_and_nouns() -> None:
    assert set(ROOT.commands) == ROOT_VERBS | DAEMONS.keys() | SINGULAR.keys() | NOUNS


def test_help_of_the_root_has_the_first_line_of_each_command(moorage: Run) -> None:
    shown = " ".join(moorage("--help", COLUMNS="400").stdout.split())
    for name, command in ROOT.commands.items():
        assert f" {name} {command.get_short_help_str(200)}" in shown


def test_every_command_is_in_one_group_of_the_help() -> None:
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == set(ROOT.commands)


def test_groups_of_commands_are_headings_of_the_help(moorage: Run) -> None:
    shown = moorage("--help").stdout
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert titles == [*COMMAND_GROUPS, "Global options", "Options"]
    for title, names in COMMAND_GROUPS.items():
        section = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  ([a-z-]+) ", section, re.MULTILINE) == list(names)


def help_of(path: tuple[str, ...], command: Any) -> str:
    context = typer.Context(command, info_name=" ".join(("moorage", *path)))
    return str(command.get_help(context))


def test_only_the_root_describes_global_options() -> None:
    root = help_of((), ROOT)
    for name in SHARED:
        assert f"--{name.replace('_', '-')} " in root

    seen = 0
    for path, command in commands(ROOT):
        shown = help_of(path, command)
        shared = [option for option in command.params if is_global(option)]
        for option in shared:
            assert not re.search(rf"^  (-\w, )?{option.opts[0]} ", shown, re.MULTILINE), path

        assert ("Global options, such as" in shown) == bool(shared), path
        seen += bool(shared)

    assert seen > 100


def test_help_of_a_group_shows_whole_summaries(moorage: Run) -> None:
    shown = " ".join(moorage("keys", "--help").stdout.split())
    for name, command in ROOT.commands["keys"].commands.items():
        assert f" {name} {command.get_short_help_str(200)}" in shown


def test_nouns_are_plural_and_take_known_verbs() -> None:
    for noun in NOUNS:
        assert noun.endswith("s")
        verbs = set(ROOT.commands[noun].commands)
        assert "list" in verbs, noun
        assert verbs <= NOUN_VERBS, noun


def test_daemons_and_singular_subjects_have_only_their_own_verbs() -> None:
    for name, verbs in (DAEMONS | SINGULAR).items():
        assert set(getattr(ROOT.commands[name], "commands", ())) == verbs, name


def test_nothing_is_hidden_and_everything_has_help() -> None:
    for path, command in commands(ROOT):
        assert not command.hidden, path
        assert command.help, path


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_ls_and_rm_are_aliases(noun: str) -> None:
    group = ROOT.commands[noun]
    context = typer.Context(group)
    assert group.get_command(context, "ls") is group.commands["list"]
    assert group.get_command(context, "rm") is group.commands.get("delete")


def test_options_that_take_a_span_of_time_take_durations() -> None:
    seen = set[str]()
    for path, command in commands(ROOT):
        for parameter in command.params:
            names = set(parameter.opts)
            assert not any(
                name.startswith("--") and name.endswith(("-s", "-ms")) for name in names
            ), (
                path,
                names,
            )
            if parameter.metavar == "DURATION" or names & DURATIONS:
                assert parameter.metavar == "DURATION", (path, names)
                seen |= names & DURATIONS
                assert names <= DURATIONS, (path, names)

    assert seen == DURATIONS


def test_defaults_pass_the_parsers_of_their_options() -> None:
    """A command without options must not fail for an option that nobody gave."""
    checked = 0
    for path, command in commands(ROOT):
        for parameter in getattr(command, "params", ()):
            parser = parameter.type_descriptor.parameter_info.parser
            default = parameter.get_default(typer.Context(command))
            if parser is None or default is None:
                continue

            checked += 1
            assert parser(default) == default, (path, parameter.opts)

    assert checked > 3


@pytest.mark.parametrize("value", ["90", "soon", "1h90", "-5m"])
def test_malformed_duration_names_the_option_and_the_grammar(moorage: Run, value: str) -> None:
    result = moorage("run", f"--timeout={value}", "--", "true")
    assert result.exit_code == 2
    assert "--timeout" in result.stderr
    assert "Value error" not in result.stderr
    assert f"{value!r} is not a duration: write it like 90s, 10m, 1h30m or 7d" in result.stderr


def test_every_command_that_prints_json_prints_yaml() -> None:
    """Machine commands list the formats in their help; all others use those of ``Output``."""
    lacking = {
        " ".join(path)
        for path, command in commands(ROOT)
        for option in getattr(command, "params", ())
        if "--output" in option.opts
        and option.type_descriptor.annotation is not Output
        and "yaml" not in option.help
    }
    assert lacking == {"simulate"}, "its summary is text or json"


def test_noun_without_a_verb_lists(moorage: Run) -> None:
    for noun in ("agents", "groups", "keys", "quotas", "secrets", "sessions", "endpoints"):
        alone = moorage(noun, "-o", "json")
        listed = moorage(noun, "ls", "-o", "json")
        assert (alone.exit_code, alone.stdout) == (0, listed.stdout)


ROOT_FOLDER = Path(__file__).parents[3]
# In backticks, or a line of an indented block up to its comment.
QUOTED = re.compile(r"`+moorage ([^`]+?)`+|^ {4,}(?:\$ )?moorage ([^#\n]+)", re.MULTILINE)


def quoted() -> Iterator[tuple[str, list[str]]]:
    """Commands quoted in messages, docstrings and documents: the file, and the words after
    ``moorage``."""
    for folder, pattern in (("src", "*.py"), ("docs", "*.md"), (".", "*.md")):
        for file in (ROOT_FOLDER / folder).glob(pattern if folder == "." else f"**/{pattern}"):
            text = re.sub(r'"\s*\n\s*f?"', "", file.read_text())  # adjacent literals
            if file.name == "CHANGELOG.md":
                continue  # it quotes commands from earlier releases

            for match in QUOTED.finditer(text):
                yield (
                    str(file.relative_to(ROOT_FOLDER)),
                    (match[1] or match[2]).partition(" -- ")[0].split(),
                )


def unknown_part(words: list[str]) -> str:
    """The first subcommand or long option that the command line does not have; empty if it has
    all."""
    command = ROOT
    for position, word in enumerate(words):
        subcommands = getattr(command, "commands", {})
        if not subcommands or not re.fullmatch("[a-z-]+", word) or word.startswith("-"):
            options = [option for option in words[position:] if option.startswith("--")]
            known = {
                name for option in command.params for name in (*option.opts, *option.secondary_opts)
            } | {"--help"}
            return next((option for option in options if option.partition("=")[0] not in known), "")

        if word not in {*subcommands, "ls", "rm"}:
            return word

        command = subcommands.get(word, command)

    return ""


def test_quoted_commands_exist() -> None:
    found = list(quoted())
    assert len(found) > 200
    assert {(file, " ".join(words)) for file, words in found if unknown_part(words)} == set()


def test_unknown_quoted_command_is_found() -> None:
    assert unknown_part(["endpoint", "list"]) == "endpoint"
    assert unknown_part(["agents", "remove", "node-1"]) == "remove"
    assert unknown_part(["serve", "MODEL", "--gpu-count", "2"]) == "--gpu-count"
    assert unknown_part(["agents", "drain", "node-1"]) == ""
