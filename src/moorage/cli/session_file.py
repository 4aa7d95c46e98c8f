"""Files with a session: the fields of its specification in YAML or TOML."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from moorage.common.model.errors import InvalidInput

_MAX_BYTES = 1 << 20
# Fields whose entries are overridden one by one.
_MAPPINGS = ("resources", "env", "secret_env", "user_labels", "labels")


def read(file: str) -> dict[str, Any]:
    """The fields in a file, TOML if its name says so. Raises ``InvalidInput``, which names the
    file."""
    from moorage.common.model.spec import SessionSpec

    found = _parsed(file)
    if not isinstance(found, dict):
        raise InvalidInput(
            f"--file {file!r} holds no session",
            next_step="write fields like `command: [python, train.py]`",
        )

    known = SessionSpec.model_fields
    for name in found:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            raise InvalidInput(
                f"--file {file!r}: a session has no field {name!r}",
                next_step=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}",
            )

    return found


def merged(fields: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file, overridden by those of options."""
    both = {
        name: {**fields[name], **options[name]}
        for name in _MAPPINGS
        if isinstance(fields.get(name), dict) and isinstance(options.get(name), dict)
    }
    return fields | options | both


def holds_session(file: str) -> bool:
    """Whether the file has a session rather than manifests, which have a ``kind``. A file that
    cannot be read has none."""
    if file == "-":
        return False
    try:
        found = _parsed(file)
    except InvalidInput:
        return False
    return isinstance(found, dict) and "kind" not in found


def _parsed(file: str) -> Any:
    text = _text(file)
    if file.endswith(".toml"):
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"--file {file!r} is not TOML: {error}") from None

    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"--file {file!r} is not YAML: {error}") from None


def _text(file: str) -> str:
    try:
        with Path(file).expanduser().open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) <= _MAX_BYTES:
            return content.decode()
        why = f"it is larger than {_MAX_BYTES >> 20} MiB"
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"

    raise InvalidInput(
        f"--file {file!r} cannot be read: {why}", next_step="name a YAML or TOML file"
    )
