"""The task list of ``moorage run --tasks``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.common.model.errors import InvalidInput
from moorage.common.model.task_states import MAX_LIST_BYTES

# Each line is a command of the shell.
_SHELL = ["sh", "-c", "{}"]


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that follow from ``--tasks`` and those that belong to it. Raises
    ``InvalidInput``."""
    own = {
        "workers": given["workers"],
        "retries": given["task_retries"],
        "timeout_s": given["task_timeout"],
    }
    set_fields = {name: value for name, value in own.items() if value is not None}
    if given["tasks"] is None:
        if set_fields:
            raise InvalidInput(
                "--workers, --task-retries and --task-timeout apply only to task lists",
                next_step="also give --tasks FILE",
            )
        return {}

    if given["template"] is not None or given["file"] is not None:
        command = given["command"]
    else:
        command = given["command"] or _SHELL
    return {"tasks": {"lines": _read(given["tasks"])} | set_fields, "command": command}


def _read(name: str) -> str:
    """The text of a list. Raises ``InvalidInput`` if it cannot be read or is too large."""
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            data = file.read(MAX_LIST_BYTES + 1)
            text = data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"--tasks {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidInput(
            f"--tasks {name}: line {line} is not UTF-8", next_step="write the list in UTF-8"
        ) from None

    if len(data) > MAX_LIST_BYTES:
        raise InvalidInput(
            f"--tasks {name} has more than {MAX_LIST_BYTES:,} bytes",
            next_step="split it, or name inputs in files that the program reads",
        )
    return text
