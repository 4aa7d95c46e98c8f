"""Files of the command line: its contexts and the address of this host's manager."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.common.model.errors import ConfigError
from moorage.sdk.installation.contexts import Contexts, contexts_file, parse_contexts

DEFAULT_URL = "http://127.0.0.1:8700"


def state_directory(env: Mapping[str, str]) -> Path:
    return Path(env.get("MOORAGE_HOME") or "~/.local/share/moorage").expanduser()


def read_contexts(home: Path) -> Contexts:
    """Raises ``ConfigError``."""
    path = contexts_file(home)
    text = read_text(path)
    return Contexts() if text is None else parse_contexts(path, text)


def current_context(env: Mapping[str, str]) -> str:
    """The name of the context in use. Raises ``ConfigError``."""
    return env.get("MOORAGE_CONTEXT") or read_contexts(state_directory(env)).current


def read_connection(path: Path) -> dict[str, Any]:
    text = read_text(path)
    if text is None:
        return {}

    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None

    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        raise ConfigError(
            f"{path} is not a JSON object of strings",
            next_step="remove it; `moorage up` writes it again",
        )

    return parsed


def read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise ConfigError(
            f"{path} cannot be read ({why})",
            next_step="run as the user who owns it, or set MOORAGE_HOME, --url and --key-file",
        ) from error
