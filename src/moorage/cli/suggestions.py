"""Suggestions for unknown commands: misspellings, and words from other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import typer

# Commands, and similar words from Slurm, Docker, Kubernetes and the shell.
_OTHER_TOOLS = {
    "--help": ("help", "man"),
    "agents": ("node", "nodes", "sinfo"),
    "agents cordon": ("cordon",),
    "agents drain": ("drain",),
    "agents uncordon": ("uncordon",),
    "contexts add": ("login",),
    "cp": ("copy", "rsync", "scp", "sftp"),
    "describe": ("get", "info", "inspect", "scontrol", "show"),
    "events": ("watch",),
    "exec": ("attach", "bash", "shell"),
    "logs": ("log", "tail"),
    "port-forward": ("forward", "tunnel"),
    "ps": ("get", "jobs", "list", "ls", "queue", "squeue", "status"),
    "ps --all": ("history", "sacct"),
    "run": ("create", "launch", "sbatch", "srun", "submit"),
    "scale": ("resize",),
    "serve": ("create", "deploy", "load", "vllm"),
    "ssh": ("attach", "connect", "shell"),
    "start": ("create", "salloc"),
    "stop": (
        "abort",
        "cancel",
        "delete",
        "destroy",
        "kill",
        "remove",
        "rm",
        "scancel",
        "terminate",
        "unload",
    ),
    "why": ("explain",),
}
# Verbs of similar meaning; nouns have one or two of each.
_LIKE_VERBS = (
    ("cancel", "delete", "forget", "kill", "remove", "revoke", "rm", "stop"),
    ("add", "create", "edit", "new", "set", "submit", "update"),
    ("describe", "get", "info", "inspect", "show"),
)
# Nouns that the root's verbs act on.
_OF_ROOT_VERBS = ("endpoints", "sessions")
# Minimum similarity to a command, and to another tool's word, between 0 and 1.
_SIMILAR = 0.6
_CLOSE = 0.8
_PREFIX = 0.8
# Commands that are less similar than the best by up to this much are also suggested.
_AS_GOOD = 0.1
_SHOWN = 3


def suggestions(word: str, group: str, commands: Sequence[str]) -> list[str]:
    """Command lines that ``word`` may stand for, best first. ``commands`` are those of ``group``,
    which is empty for the root."""
    known = _meanings(group, commands)
    if word in known:
        return list(known[word])

    scores = {other: _similarity(word, other) for other in known if other not in commands}
    scores = {other: score for other, score in scores.items() if score >= _CLOSE}
    scores |= {own: score for own in commands if (score := _likeness(word, own)) >= _SIMILAR}
    best = max(scores.values(), default=0.0)
    near = sorted(scores, key=lambda other: -scores[other])
    lines = [line for other in near if scores[other] >= best - _AS_GOOD for line in known[other]]

    return list(dict.fromkeys(lines))[:_SHOWN]


def _meanings(group: str, commands: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Command lines by their words."""
    meanings: dict[str, list[str]] = {}
    if not group or group in _OF_ROOT_VERBS:
        for line, words in _OTHER_TOOLS.items():
            for word in (line, *words) if group else words:
                meanings.setdefault(word, []).append(line)
    else:
        for verbs in _LIKE_VERBS:
            lines = [f"{group} {verb}" for verb in verbs if verb in commands]
            meanings |= {verb: lines for verb in verbs if lines}

    return meanings | {name: [f"{group} {name}".lstrip()] for name in commands}


def _similarity(word: str, other: str) -> float:
    return SequenceMatcher(None, word, other).ratio()


def _likeness(word: str, command: str) -> float:
    """The similarity, increased for a prefix, which is more likely to be meant than a word that is
    similar by chance."""
    similarity = _similarity(word, command)
    return max(similarity, _PREFIX) if len(word) > 1 and command.startswith(word) else similarity


class Suggesting:
    """A group that responds to unknown commands with ``suggestions``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)  # type: ignore[misc]  # of the class beside this one
        except typer.TyperException as error:
            word = args[0]
            if not word.startswith("-"):
                group = " ".join(ctx.command_path.split()[1:])
                lines = suggestions(word, group, self.list_commands(ctx))  # type: ignore[attr-defined]
                meant = " or ".join(f"`moorage {line}`" for line in lines)
                error.message = f"No such command {word!r}" + (
                    f"; did you mean {meant}?" if meant else ""
                )

            raise
