"""Hold cache: most sessions of an equivalence class get the same hold, which is found once."""

from __future__ import annotations

from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.order import is_overdue
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import QuotaBalance, Quotas
from moorage.manager.scheduling.core.results import HoldDetails
from moorage.manager.scheduling.core.shape import OwnedShape, Shape


class HoldCache:
    """The holds of one pass that other sessions share.

    ``of_class``: holds by equivalence class. A pass consults it for each session, so that most of
    ten thousand sessions cost one dictionary look-up. The key None, which sessions with constraints
    have, is never present.

    Two events void a hold: a new reservation (``clear``), and a charge to a quota that applies
    to the class (``charge`` drops its classes, because a hold reports how much of a quota is used).
    """

    def __init__(self, quotas: Quotas, policy: Policy, now: int) -> None:
        self._quotas = quotas
        self._has_quotas = bool(quotas)
        self._policy = policy
        self._now = now
        self.of_class: dict[OwnedShape | None, HoldDetails] = {}
        self._of_shape: dict[Shape, HoldDetails] = {}  # for sessions within their quotas
        self._of_overdue: dict[Shape, HoldDetails] = {}  # the same for overdue sessions

        # The classes to drop from ``of_class`` when a quota is charged. ``_unindexed`` ones are not
        # in it yet: a pass that places nothing never needs this index.
        self._classes_of_quota: dict[QuotaBalance, list[OwnedShape]] = {}
        self._unindexed: list[OwnedShape] = []

    def find(self, item: Pending) -> HoldDetails | None:
        """The hold of another session with the same shape. ``item`` is within its quotas."""
        known = self._of_shape.get(item.shape)
        if known is not None:
            self.share_in_class(item, known)
        elif self._of_overdue and is_overdue(item, self._policy, self._now):
            known = self._of_overdue.get(item.shape)
        return known

    def share_in_class(self, item: Pending, hold: HoldDetails) -> None:
        self.of_class[item.owned_shape] = hold
        if self._has_quotas:
            self._unindexed.append(item.owned_shape)

    def share_in_shape(self, item: Pending, hold: HoldDetails) -> None:
        self._of_shape[item.shape] = hold
        self.share_in_class(item, hold)

    def share_with_overdue(self, item: Pending, hold: HoldDetails) -> None:
        """Share the hold with overdue sessions, but not with the others of its class: the first one
        that is not overdue may be the head."""
        self._of_overdue[item.shape] = hold

    def charge(self, item: Pending) -> None:
        """Charge the quotas for a placed session, and drop the holds of all classes to which one of
        them applies."""
        if not self._has_quotas:
            return

        classes_of = self._classes_of_quota
        for owned_shape in self._unindexed:
            for balance, _, _ in self._quotas.charges(owned_shape):
                classes = classes_of.get(balance)
                if classes is None:
                    classes = classes_of[balance] = []

                classes.append(owned_shape)

        self._unindexed.clear()
        for balance, _, _ in self._quotas.charge(item):
            for owned_shape in classes_of.pop(balance, ()) if classes_of else ():
                self.of_class.pop(owned_shape, None)

    def clear(self) -> None:
        self.of_class.clear()
        self._of_shape.clear()
        self._of_overdue.clear()
        self._classes_of_quota.clear()
        self._unindexed.clear()
