"""Which session is tried next."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.manager.scheduling.model import Pending
from fairlead.manager.scheduling.policy import Policy


def order(pending: Iterable[Pending], policy: Policy) -> list[Pending]:
    """Higher priority first, then older first; the id makes it independent of the order of rows.

    With ``hol=skip`` a session already refused ``num_retries_to_skip`` times for capacity goes behind the
    others of its own priority, never behind another priority: it is tried later, not left out.
    """
    limit = 0 if policy.head_blocks else policy.num_retries_to_skip

    def rank(item: Pending) -> tuple[int, bool, int, str]:
        return -item.priority, 0 < limit <= item.retries, item.created, item.session_id

    return sorted(pending, key=rank)
