"""Blocked sessions of one pass: which of them could start once work ends, and which get a
reservation."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFits
from moorage.manager.scheduling.backfill.reservation import (
    MAX_HOLDING,
    GuardedReservation,
    GuardsOf,
    Reserver,
    reserve_overdue,
)
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.node_pool import NodePool

_ANY_AGENT: frozenset[AgentId] = frozenset()


class BlockedSessions:
    """Sessions that wait for capacity. A session that could not start even then blocks no other,
    and its right to a reservation passes to the next session."""

    def __init__(
        self,
        pool: NodePool,
        policy: Policy,
        now: int,
        *,
        guards_of: GuardsOf,
        earliest_fits: EarliestFits | None,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._now = now
        self._guards_of = guards_of
        self._earliest_fits = earliest_fits
        self._any = False
        self._holding = 0  # overdue sessions with a reservation
        self._can_be_helped: dict[object, bool] = {}

    def add(self) -> bool:
        """Mark a session as blocking others from now on. Returns whether it is the first one."""
        is_first = not self._any
        self._any = True
        return is_first

    def is_helpable(self, item: Pending) -> bool:
        """Whether it could start if all work that ends by itself had ended."""
        name = (item.shape, item.designated, item.avoid)
        found = self._can_be_helped.get(name)
        if found is None:
            found = self._can_be_helped[name] = self._reserver(item).can_be_helped()
        return found

    def blocks_nobody(self, shape: Shape) -> bool:
        """Whether it has turned out that unconstrained sessions of this shape could not start even
        then."""
        return self._can_be_helped.get((shape, _ANY_AGENT, _ANY_AGENT)) is False

    @property
    def may_hold(self) -> bool:
        """Whether one more overdue session may get a reservation."""
        return self._holding < MAX_HOLDING

    def reserve(self, item: Pending, *, overdue: bool, first: bool) -> Sequence[GuardedReservation]:
        """Reservations to which the session is entitled: an overdue one holds agents, and the
        ``first`` blocked one gets some based on known end times if the policy allows it."""
        if self._policy.hol == "strict":
            return ()

        if overdue and self.may_hold:
            self._holding += 1
            return reserve_overdue(self._reserver(item), item, self._policy, self._now)

        if first and self._policy.hol == "backfill":
            found = self._reserver(item).at_known_ends()
            return () if found is None else (found,)

        return ()

    def _reserver(self, item: Pending) -> Reserver:
        return Reserver(
            self._pool,
            item,
            policy=self._policy,
            now=self._now,
            guards_of=self._guards_of,
            index=self._earliest_fits,
        )
