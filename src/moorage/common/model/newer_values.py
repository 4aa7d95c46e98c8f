"""Values that a newer release has stored, as in the middle of an upgrade or before a downgrade: the
part of them that this one knows. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler

M = TypeVar("M", bound=BaseModel)

NEEDS = "needs a newer manager"
# Context of a validation that takes what it knows of values with fields of a newer release, as a
# client does.
KNOWN_FIELDS = {"known_fields": True}
# Longest text that says what is not known.
_LONGEST = 300
# Fields are left out in so many rounds at most, to find those that are known.
_ROUNDS = 20


def why_unreadable(error: Exception) -> str:
    """One line for people: which part of a stored value is not known."""
    if not isinstance(error, ValidationError):
        return f"{NEEDS}: {type(error).__name__}: {error}"[:_LONGEST]
    first, *more = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(map(str, first["loc"]))
    others = f", and {len(more)} more" if more else ""
    return f"{NEEDS}: {where}{': ' if where else ''}{first['msg']}{others}"[:_LONGEST]


def known_part(
    model: type[M], stored: Mapping[str, Any], minimal: Mapping[str, Any]
) -> tuple[M, str]:
    """``stored`` without the fields that this release does not know, and what these are; "": there
    are none. ``minimal``: what is taken in place of it if the rest is not valid either."""
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


def known_fields(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """For ``WrapValidator``: in the context ``KNOWN_FIELDS``, fields that this release does not
    know are left out, at any depth."""
    if not info.context or not info.context.get("known_fields"):
        return validate(value)
    try:
        return validate(value)
    except ValidationError as error:
        return validate(_without_unknown(value, error))


def _without_unknown(value: Any, error: ValidationError) -> Any:
    left = copy.deepcopy(value)
    for found in error.errors(include_url=False):
        if found["type"] == "extra_forbidden":
            *parents, name = found["loc"]
            inner = left
            try:
                for part in parents:
                    inner = inner[part]
                inner.pop(name, None)
            except (KeyError, IndexError, TypeError, AttributeError):
                continue  # below a union, whose places are no keys

    return left
