"""Limit on sign-in attempts per address. It complements the lock per name, because a client may try
many names. Pure.

Each manager keeps it in memory, for a limited number of addresses. It saves password hashing, so it
must cost less than hashing.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil


class AttemptLimit:
    """A bucket of ``burst`` attempts for each address, refilled with one every ``refill_s``
    seconds."""

    def __init__(self, burst: int = 30, refill_s: float = 6.0, addresses: int = 4096) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._addresses = addresses
        # When each address's bucket will be full again, least recently used first.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, address: str, now: float) -> int:
        """Count an attempt at ``now`` (monotonic). Returns 0, or the seconds until the next attempt
        is allowed."""
        address = _network(address)
        full_at = max(self._full_at.get(address, now), now) + self._refill_s
        over = full_at - now - self._burst * self._refill_s
        if over > 1e-6:
            return ceil(over)

        self._full_at[address] = full_at
        self._full_at.move_to_end(address)
        while len(self._full_at) > self._addresses:
            self._full_at.popitem(last=False)

        return 0

    def give_back(self, address: str, now: float) -> None:
        """Undo the counting of a successful attempt."""
        address = _network(address)
        full_at = self._full_at.get(address, now) - self._refill_s
        if full_at > now:
            self._full_at[address] = full_at
        else:
            self._full_at.pop(address, None)


def _network(address: str) -> str:
    """The network of an address, because an IPv6 client has a whole /64."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return ""
    return (
        str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else address
    )
