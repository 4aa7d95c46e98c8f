"""Selectors over user labels as SQL conditions. The label indexes serve the positive conditions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, and_, literal_column, not_, or_

from moorage.common.model.labels import Requirement, Selector


def conditions(column: Column[Any], selector: Selector) -> list[ColumnElement[Any]]:
    """A selector's conditions. ``column``: the labels column of a table whose label index omits
    rows without labels."""
    found = [_condition(column, requirement) for requirement in selector]
    if any(requirement.operator in ("in", "exists") for requirement in selector):
        found.append(column != literal_column("'{}'::jsonb"))
    return found


def _condition(column: Column[Any], requirement: Requirement) -> ColumnElement[Any]:
    key = requirement.key
    negated = requirement.operator in ("notin", "absent")
    if requirement.operator in ("exists", "absent"):
        condition = column.has_key(key)
    else:
        condition = or_(*(column.contains({key: value}) for value in sorted(requirement.values)))
    return not_(condition) if negated else and_(condition)
