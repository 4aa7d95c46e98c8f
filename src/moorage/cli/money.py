"""The currency of amounts of money."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.sdk import Client


async def currency_of(client: Client, units: Collection[str]) -> str:
    """The installation's currency if one of these units is money; "" if none is set."""
    return await client.prices.currency() if "money" in units else ""
