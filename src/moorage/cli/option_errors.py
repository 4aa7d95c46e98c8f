"""Field errors in terms of the command line: the option, its value, and the allowed values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.sdk import ApiError

# Fields of the REST API whose options have other names.
_PARAMETERS = {
    "agents": "on",
    "args": "arg",
    "dependency_failed": "if_failed",
    "depends_on": "after",
    "expires_at": "expires",
    "labels": "agent_label",
    "max_lifetime_s": "lifetime",
    "model": "model",
    "ports": "port",
    "resource_group": "group",
    "resource_groups": "group",
    "secret_env": "secret",
    "shared_with": "share",
    "timeout_s": "timeout",
    "user_labels": "label",
}
_FIELD = re.compile(r"([a-z_]+)(?:\.\S+)?: ")
_SHOWN_CHARACTERS = 80


def options_of(parameters: Iterable[Any]) -> dict[str, str]:
    """Options like ``--name`` and arguments like ``NAME``, by the names of a command's
    parameters."""
    found = {}
    for parameter in parameters:
        long = [name for name in parameter.opts if name.startswith("--")]
        found[parameter.name] = long[0] if long else str(parameter.name).upper()
    return found


def validation_error(
    errors: Iterable[Mapping[str, Any]], options: Mapping[str, str]
) -> InvalidInput:
    """Pydantic's errors in terms of options."""
    return InvalidInput("; ".join(_problem(error, options) for error in errors))


def _problem(error: Mapping[str, Any], options: Mapping[str, str]) -> str:
    where = [str(part) for part in error["loc"]]
    message = str(error["msg"]).removeprefix("Value error, ")
    if not where:
        return _with_option(message, options)

    value = error.get("input")
    found = ""
    if isinstance(value, str | int | float) and repr(value) not in message:
        text = repr(value)
        found = "=" + (text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")

    option = option_for(where[0], options)
    name = ".".join(where) if option is None else option
    return f"{name}{found}: {message}"


def option_for(field: str, options: Mapping[str, str]) -> str | None:
    """The option for a field, or None if the command has none."""
    return options.get(_PARAMETERS.get(field, field))


def name_the_option(error: ApiError, options: Mapping[str, str]) -> None:
    """The message of an answer, with a field name at its start replaced by the option."""
    error.message = _with_option(error.message, options)


def _with_option(message: str, options: Mapping[str, str]) -> str:
    begins = _FIELD.match(message)
    option = option_for(begins[1], options) if begins else None
    return message if begins is None or option is None else f"{option}: {message[begins.end() :]}"
