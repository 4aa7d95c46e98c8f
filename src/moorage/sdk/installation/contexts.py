"""Contexts: named installations with their addresses and keys. One of them is in use at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from moorage.common.model.errors import ConfigError, InvalidInput, NotFound

# The installation that `moorage up` saved on this machine, or the defaults.
LOCAL = "local"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Context:
    """Values for the options of the same names: addresses and file paths. An empty value means that
    the option is not set."""

    url: str
    openai_url: str = ""
    key_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    current: str = LOCAL
    saved: Mapping[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context | None:
        """The context with this name; None for the local one. Raises ``NotFound``."""
        if name == LOCAL:
            return None
        if name not in self.saved:
            raise NotFound(
                f"there is no context {name!r}", next_step="`moorage contexts` lists them"
            )
        return self.saved[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        """Add a context, or replace the one with the same name. Raises ``InvalidInput`` for a name
        that cannot be a file name."""
        if name == LOCAL or not _NAME.fullmatch(name):
            raise InvalidInput(
                f"a context cannot be named {name!r}",
                next_step=f"use up to 64 ASCII letters, digits, . _ or -, but not {LOCAL!r}",
            )
        return Contexts(self.current, {**self.saved, name: context})

    def without(self, name: str) -> Contexts:
        """Remove a context. If it was in use, the local one is used from then on. Raises
        ``NotFound``."""
        if name == LOCAL:
            raise InvalidInput(
                f"the context {LOCAL} is not saved here", next_step="name another context"
            )
        self.find(name)
        rest = {other: context for other, context in self.saved.items() if other != name}
        return Contexts(LOCAL if self.current == name else self.current, rest)

    def using(self, name: str) -> Contexts:
        """Switch to the context with this name. Raises ``NotFound``."""
        self.find(name)
        return Contexts(name, self.saved)


def contexts_file(home: Path) -> Path:
    return home / "contexts.json"


def parse_contexts(path: Path, text: str) -> Contexts:
    """Raises ``ConfigError``."""
    try:
        found = json.loads(text)
        saved = {
            str(name): Context(**_checked(fields)) for name, fields in found["contexts"].items()
        }
        return Contexts(str(found["current"]), saved)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} is not a contexts file",
            next_step="remove it; `moorage contexts add` writes it again",
        ) from None


def _checked(fields: Any) -> dict[str, str]:
    if not all(isinstance(fields[name], str) for name in fields):
        raise TypeError
    return dict(fields)


def write_contexts(home: Path, contexts: Contexts) -> None:
    """Replace the file atomically, so that other commands read either the old or the new one.
    Raises ``ConfigError``."""
    document = {
        "current": contexts.current,
        "contexts": {name: asdict(context) for name, context in sorted(contexts.saved.items())},
    }
    write_private(contexts_file(home), json.dumps(document, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its user can read. Raises ``ConfigError``."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)

        part.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror})",
            next_step="set MOORAGE_HOME to a directory that you own",
        ) from error
