"""Values stored by a newer release, during an upgrade or before a downgrade, reduced to the part
that this release knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

NEEDS = "needs a newer manager"
# Maximum length of the text that names the unknown parts.
_LONGEST = 300
# Maximum number of rounds in which unknown fields are removed to find the known ones.
_ROUNDS = 20


def why_unreadable(error: Exception) -> str:
    """One line for people that shows the unknown part of a stored value."""
    if not isinstance(error, ValidationError):
        return f"{NEEDS}: {type(error).__name__}: {error}"[:_LONGEST]
    first, *more = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(map(str, first["loc"]))
    others = f", and {len(more)} more" if more else ""
    return f"{NEEDS}: {where}{': ' if where else ''}{first['msg']}{others}"[:_LONGEST]


def known_part(
    model: type[M], stored: Mapping[str, Any], minimal: Mapping[str, Any]
) -> tuple[M, str]:
    """``stored`` without the fields that this release does not know, and a text that names those
    fields; "" if there are none.

    ``minimal``: replaces the value if the rest is not valid either."""
    left = dict(stored)
    why = ""
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(left), why
        except ValidationError as error:
            why = why or why_unreadable(error)
            unknown = {found["loc"][0] for found in error.errors(include_url=False) if found["loc"]}

        known = {name: value for name, value in left.items() if name not in unknown}
        if len(known) == len(left):
            break

        left = known

    return model.model_validate(dict(minimal)), why
