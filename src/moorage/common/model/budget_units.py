"""Amounts in budgets and prices, both as people write them, such as hours, and as exact integers.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from moorage.common.model.errors import InvalidInput

# Ledger amount in one unit as people write it, and the name of that unit.
_SCALES: Mapping[str, tuple[int, str]] = {
    "gpu": (3_600_000, "h"),
    "cpu": (3_600_000, "h"),
    "node": (3_600_000, "h"),
    "memory": (1024 * 3600, "GiB h"),
    "money": (1_000_000, ""),
}
_LARGEST = (1 << 53) - 1


def parse_budget_amount(unit: str, text: str) -> int:
    """Parse an amount: ``"500"`` means 500 hours for gpu, 500 of the currency for money, 500 for
    tokens.

    Raises ``InvalidInput``."""
    scale, name = _SCALES.get(unit, (1, ""))
    try:
        number = Decimal(text.removesuffix("h").strip() if name == "h" else text)
        amount = number * scale
    except InvalidOperation:
        number = amount = Decimal(-1)

    if not number.is_finite() or not 0 <= amount <= _LARGEST or amount != int(amount):
        kind = {"h": "hours", "GiB h": "GiB-hours"}.get(
            name, "money" if unit == "money" else "a whole number"
        )
        raise InvalidInput(
            f"{text!r} is not an amount of {unit}",
            next_step=f"write {kind}, 0 or more, such as 500",
        )

    return int(amount)


def format_budget_amount(unit: str, amount: int, currency: str = "") -> str:
    """``currency``: written behind money, such as EUR."""
    scale, name = _SCALES.get(unit, (1, ""))
    if scale == 1:
        return str(amount)
    return f"{Decimal(amount) / scale:.2f} {currency if unit == 'money' else name}".rstrip()
