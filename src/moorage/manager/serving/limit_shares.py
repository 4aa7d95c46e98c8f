"""Division of limits among proxies. Pure.

A share is the amount that one proxy may grant in any minute. A proxy keeps the part of its share
that it has granted until that minute has passed, so neither the shares of all proxies nor their
grants ever exceed the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from moorage.common.link.proxy_messages import LimitNeed, LimitShare

# How long a share is valid. A proxy stops using it a little earlier.
SHARE_S = 10.0
# Requests, tokens, concurrent requests.
_KINDS = 3


@dataclass(frozen=True, slots=True)
class StoredShares:
    """Shares of one subject by proxy, as JSON values. ``now``: Unix seconds by the database's
    clock. ``room``: the remainder of a budget, which replaces its limit; None if the subject is not
    a budget."""

    subject: str
    revision: int
    shares: Mapping[str, Any]
    now: float
    room: int | None = None


class Holding(NamedTuple):
    """The amount of one limit that a proxy may grant, and the amount that it wants."""

    held: int
    wanted: int


def divide(limit: int, used: int, wanted: int, others: Iterable[Holding], *, proxies: int) -> int:
    """The new share of a proxy that has ``used`` this much of the limit, and wants ``wanted``.

    Free amounts go to the first proxy that asks. A proxy that has less than it wants, and less than
    an equal part of the limit, takes precedence over proxies that have more: they do not get back
    amounts that it needs.
    """
    others = list(others)
    equal = limit // max(1, proxies, len(others) + 1)
    free = limit - sum(max(other.held, min(other.wanted, equal)) for other in others)
    grant = min(free, wanted)

    # Unwanted amounts are divided as well, so that a burst need not wait for the next share.
    grant += max(0, free - grant) // max(1, proxies)
    return max(used, grant, 0)


def share_of(
    need: LimitNeed, proxy: str, stored: StoredShares, proxies: int
) -> tuple[LimitShare, StoredShares]:
    """The share of ``proxy``, and the new stored state of the subject.

    A share that shrank counts at its old size until the proxy has confirmed the new one.
    """
    shares = {name: held for name, held in stored.shares.items() if _ends_at(held) > stored.now}
    others = [held for name, held in shares.items() if name != proxy and _is_known(held)]
    granted = []
    kept = []
    wants = []
    uses = []
    for kind, (limit, used, wanted, held) in enumerate(_kinds(need)):
        if stored.room is not None:
            limit = min(limit, stored.room)

        holdings = (Holding(other["held"][kind], other["wanted"][kind]) for other in others)
        grant = divide(limit, used, wanted=wanted, others=holdings, proxies=proxies)
        if stored.room is not None:
            # used amounts are no longer part of it once they are aggregated
            grant = min(grant, limit)

        granted.append(grant)
        kept.append(max(grant, held, used))
        wants.append(wanted)
        uses.append(used)

    shares[proxy] = {"held": kept, "wanted": wants, "used": uses, "until": stored.now + SHARE_S}
    return LimitShare(need.subject, *granted), StoredShares(
        need.subject, stored.revision, shares, stored.now
    )


def _ends_at(held: Any) -> float:
    """When a share ends. A share without an end has ended."""
    until = held.get("until") if isinstance(held, dict) else None
    return float(until) if isinstance(until, int | float) else 0.0


def _is_known(held: Mapping[str, Any]) -> bool:
    """Whether this release can read a share's format. A share that a newer manager has stored in
    another format is kept for that manager, and is not counted here."""
    parts = [held.get(name) for name in ("held", "wanted")]
    return all(
        isinstance(part, list)
        and len(part) >= _KINDS
        and all(isinstance(item, int) for item in part)
        for part in parts
    )


def _kinds(need: LimitNeed) -> tuple[tuple[int, int, int, int], ...]:
    return (
        (need.limit_requests, need.used_requests, need.wanted_requests, need.held_requests),
        (need.limit_tokens, need.used_tokens, need.wanted_tokens, need.held_tokens),
        (need.limit_concurrent, need.used_concurrent, need.wanted_concurrent, need.held_concurrent),
    )
