"""Division of limits among proxies. Pure.

A share is what one proxy may grant in any minute. A proxy that has granted something keeps that
part of its share until it has left the minute, so the shares of all proxies never add up to more
than the limit, and neither does what they grant.
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
    """The shares of one subject by proxy, as JSON values. ``now``: unix seconds by the database's
    clock. ``room``: what is left of a budget, in place of its limit; None: the subject is none."""

    subject: str
    revision: int
    shares: Mapping[str, Any]
    now: float
    room: int | None = None


class Holding(NamedTuple):
    """What a proxy may grant of one limit, and what it wants."""

    held: int
    wanted: int


def divide(limit: int, used: int, wanted: int, others: Iterable[Holding], *, proxies: int) -> int:
    """The new share of a proxy that has ``used`` so much of the limit, and wants ``wanted``.

    What is free goes to who asks for it first. A proxy that has less than it wants, and less than
    an equal part of the limit, comes before those that have more: they do not get that part again.
    """
    others = list(others)
    equal = limit // max(1, proxies, len(others) + 1)
    free = limit - sum(max(other.held, min(other.wanted, equal)) for other in others)
    grant = min(free, wanted)

    # A burst need not wait for the next share: what nobody wants is divided, too.
    grant += max(0, free - grant) // max(1, proxies)
    return max(used, grant, 0)


def share_of(
    need: LimitNeed, proxy: str, stored: StoredShares, proxies: int
) -> tuple[LimitShare, StoredShares]:
    """The share of ``proxy``, and what is stored of the subject from then on.

    A share that became smaller counts as before until the proxy has said that it holds the new one.
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
            # what was used is no part of it any more, once it is summed up
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
    """One that does not say it has ended."""
    until = held.get("until") if isinstance(held, dict) else None
    return float(until) if isinstance(until, int | float) else 0.0


def _is_known(held: Mapping[str, Any]) -> bool:
    """One that a newer manager has stored in another form is kept for it, and counts for nothing
    here."""
    parts = [held.get(name) for name in ("held", "wanted")]
    return all(
        isinstance(part, list) and len(part) >= _KINDS and all(isinstance(one, int) for one in part)
        for part in parts
    )


def _kinds(need: LimitNeed) -> tuple[tuple[int, int, int, int], ...]:
    return (
        (need.limit_requests, need.used_requests, need.wanted_requests, need.held_requests),
        (need.limit_tokens, need.used_tokens, need.wanted_tokens, need.held_tokens),
        (need.limit_concurrent, need.used_concurrent, need.wanted_concurrent, need.held_concurrent),
    )
