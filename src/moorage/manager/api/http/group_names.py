"""Resolution of former names of resource groups in requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def with_current_names(model: M, aliases: Mapping[str, str]) -> M:
    """``model`` with each alias of a resource group replaced by the group's current name.

    Covers the fields ``resource_group`` and ``resource_groups`` of nested models at any depth."""
    if not aliases:
        return model

    changed: dict[str, Any] = {}
    for field in type(model).model_fields:
        value = getattr(model, field)
        current = _current(field, value, aliases)
        if current is not value:
            changed[field] = current

    return model.model_copy(update=changed) if changed else model


def _current(field: str, value: Any, aliases: Mapping[str, str]) -> Any:
    if isinstance(value, BaseModel):
        return with_current_names(value, aliases)
    if field == "resource_group" and isinstance(value, str):
        return aliases.get(value, value)
    if not isinstance(value, list):
        return value

    found: list[Any] = [
        with_current_names(item, aliases) if isinstance(item, BaseModel) else item for item in value
    ]
    if field == "resource_groups":
        found = list(dict.fromkeys(aliases.get(item, item) for item in value))

    return value if found == value else found
