"""Options and arguments whose plain values need no conversion.

typer passes every value through a pydantic adapter, even a missing value, and a string that stays a
string. Importing pydantic and building the adapters takes a third of a short command's CPU time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from typer.core import TyperArgument, TyperOption

_UNKNOWN = object()


class _QuickOption(TyperOption):
    def process_value(self, ctx: Any, value: Any) -> Any:
        return _process(self, ctx, value, super().process_value)


class _QuickArgument(TyperArgument):
    def process_value(self, ctx: Any, value: Any) -> Any:
        return _process(self, ctx, value, super().process_value)


class QuickParameters:
    """Parameters of a command or group that accept plain values without conversion. typer lets a
    command choose its own class, but not the class of its parameters."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class beside this one
        for parameter in parameters:
            if type(parameter) is TyperOption:
                parameter.__class__ = _QuickOption
            elif type(parameter) is TyperArgument:
                parameter.__class__ = _QuickArgument
        return parameters


def _process(parameter: Any, ctx: Any, value: Any, process: Callable[[Any, Any], Any]) -> Any:
    plain = _plain_value(parameter, value)
    if plain is _UNKNOWN:
        return process(ctx, value)
    if parameter.required and parameter.value_is_missing(plain):
        return process(ctx, value)  # raises
    return plain if parameter.callback is None else parameter.callback(ctx, parameter, plain)


def _plain_value(parameter: Any, value: Any) -> Any:
    """The converted value if it is plain; otherwise, and for every invalid value, ``_UNKNOWN``."""
    several = parameter.multiple or parameter.nargs != 1
    if value is None:
        return () if parameter.multiple or parameter.nargs == -1 else None

    described = parameter.type_descriptor
    if several or described.parameter_info.parser is not None:
        return _UNKNOWN

    wanted = described.annotation
    if wanted is str and type(value) is str:
        return value
    if isinstance(wanted, type) and issubclass(wanted, Enum) and isinstance(value, str):
        return next((member for member in wanted if member.value == value), _UNKNOWN)

    return _UNKNOWN
