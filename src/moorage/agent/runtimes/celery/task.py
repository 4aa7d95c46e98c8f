"""The command of a session that invokes a Celery task, in the style of ``celery call``: ``NAME
[--args JSON] [--kwargs JSON] [--queue QUEUE]``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.common.model.errors import InvalidInput

DEFAULT_QUEUE = "celery"  # Celery's default
_NAME = re.compile(r"[A-Za-z_][\w.:-]{0,199}", re.ASCII)
_QUEUE = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_OPTIONS = ("--args", "--kwargs", "--queue")


@dataclass(frozen=True, slots=True)
class CeleryTask:
    """A task invocation. ``args`` and ``kwargs`` are decoded from JSON."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str = DEFAULT_QUEUE


def parse_task(command: Sequence[str]) -> CeleryTask:
    """Parse a command. Raises ``InvalidInput``, which explains what is wrong with it."""
    name, *rest = command or ("",)
    if not _NAME.fullmatch(name):
        raise _wrong(f"{name!r} is not the name of a task")

    given: dict[str, str] = {}
    words = iter(rest)
    for word in words:
        option, has_value, value = word.partition("=")
        if option not in _OPTIONS:
            raise _wrong(f"{word!r} is not an option")
        if option in given:
            raise _wrong(f"{option} is given twice")
        if not has_value and (value := next(words, "")) == "":
            raise _wrong(f"{option} has no value")

        given[option] = value

    args = _parsed(given, "--args", "[]", list)
    kwargs = _parsed(given, "--kwargs", "{}", dict)
    queue = given.get("--queue", DEFAULT_QUEUE)
    if not _QUEUE.fullmatch(queue):
        raise _wrong(f"--queue {queue!r} is not the name of a queue")

    return CeleryTask(name, args, kwargs, queue)


def _parsed(given: dict[str, str], option: str, default: str, kind: type) -> Any:
    try:
        value = json.loads(given.get(option, default))
    except ValueError as error:
        raise _wrong(f"{option} {given[option][:100]!r} is not JSON: {error}") from None
    if not isinstance(value, kind):
        wanted = "a list, like [1, 2]" if kind is list else 'an object, like {"epochs": 3}'
        raise _wrong(f"{option} {given[option][:100]!r} is not {wanted}")
    return value


def _wrong(problem: str) -> InvalidInput:
    return InvalidInput(
        f"the command of a Celery task: {problem}",
        next_step="write it as NAME --args '[1, 2]' --kwargs '{\"epochs\": 3}' --queue QUEUE",
    )
