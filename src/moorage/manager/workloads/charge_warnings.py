"""Warnings about prices and budgets that charge nobody. Pure.

Their rows are those of ``price_gaps.sql`` and ``budget_doubts.sql`` in ``manager/store/metering``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

_HOURS = {"gpu": "hours of GPUs", "cpu": "CPU hours", "memory": "GiB-hours of memory"}


def of_prices(gaps: Iterable[Mapping[str, Any]], unit: str | None = None) -> list[str]:
    """One warning for each gap in the prices. ``unit``: only gaps of this unit."""
    return [_of_gap(gap) for gap in gaps if unit in (None, gap["unit"])]


def _of_gap(gap: Mapping[str, Any]) -> str:
    unit = gap["unit"]
    device = gap["device"]
    group = gap["resource_group"]
    what = _HOURS.get(unit, f"usage in {unit}")
    if device:
        what = f"hours of {device!r}"
    if group:
        what = f"{what} in resource group {group!r}"

    begins = gap["begins"]
    if begins is not None:
        at = datetime.fromtimestamp(float(begins), UTC)
        return f"{what} cost nothing until {at:%Y-%m-%dT%H:%MZ}, when the first price applies"

    options = (f" --device {device!r}" if device else "") + (f" --group {group}" if group else "")
    return (
        f"{what} cost nothing: no price applies; set one: moorage prices set {unit} PRICE{options}"
    )


def of_budgets(
    doubts: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, str, str, str], list[str]]:
    """The warnings of each budget against which nothing can count, by scope, name, unit and
    period."""
    return {
        (row["scope"], row["name"], row["unit"], row["period"]): _of_budget(row) for row in doubts
    }


def _of_budget(row: Mapping[str, Any]) -> list[str]:
    scope = row["scope"]
    name = row["name"]
    found = []

    if row["archived"]:
        found.append(
            f"{scope} {name!r} is archived, so it uses nothing; moorage {scope}s restore {name}"
        )
    if row["without_gpus"]:
        found.append(
            f"no resource group that {scope} {name!r} may use has a GPU, so nothing counts against "
            "this budget"
        )
    if row["unpriced"]:
        found.append(
            f"nothing that {scope} {name!r} may use has a price now, so nothing counts against "
            "this budget; see moorage prices"
        )

    return found
