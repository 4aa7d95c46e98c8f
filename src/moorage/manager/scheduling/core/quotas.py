"""How much of a quota is left while a plan is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from moorage.manager.scheduling.core.demand import as_asked, in_shares
from moorage.manager.scheduling.core.model import Pending, Quota
from moorage.manager.scheduling.core.results import UnmetCondition, UnmetKind
from moorage.manager.scheduling.core.shape import OwnedShape, Shape

# What a shape takes of an account: which of its numbers, and how much. Who asks for nothing of a slot does
# not ask how much is left of it.
Needs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Limited:
    """The slots that an account limits, and whether it limits sessions: most accounts are alike in that, and
    then have the same one of these."""

    slots: tuple[str, ...]
    sessions: bool


@lru_cache(maxsize=65_536)
def _limited(slots: tuple[str, ...], sessions: bool) -> Limited:
    return Limited(slots, sessions)


@lru_cache(maxsize=65_536)
def _needs(limited: Limited, shape: Shape) -> Needs:
    asked = [(index, shape.amounts.get(slot, 0)) for index, slot in enumerate(limited.slots)]
    asked += [(len(limited.slots), 1)] if limited.sessions else []
    return tuple([(index, amount) for index, amount in asked if amount])


@lru_cache(maxsize=65_536)
def _limits(items: tuple[tuple[str, int], ...], sessions: bool) -> tuple[Mapping[str, int], Limited]:
    limits = in_shares(dict(items))
    return limits, _limited(tuple(limits), sessions)


class Account:
    """One quota. ``left``: of each of its limits, and then of its sessions."""

    __slots__ = ("_limits", "left", "limited", "quota")

    def __init__(self, quota: Quota) -> None:
        self.left: list[int] = []
        self.limited = _limited((), False)
        self.reset(quota)

    def reset(self, quota: Quota) -> bool:
        """It is another one, or used otherwise. Whether it limits the same things as before."""
        before, self.quota = self.limited, quota
        self._limits, self.limited = _limits(tuple(quota.limits.items()), quota.sessions is not None)
        used = in_shares(quota.used)
        self.left[:] = [limit - used.get(slot, 0) for slot, limit in self._limits.items()]
        if quota.sessions is not None:
            self.left.append(quota.sessions - quota.running)
        return before is self.limited

    def exceeded(self, asked: Mapping[str, int]) -> Iterable[UnmetCondition]:
        quota, left = self.quota, self.left
        if quota.sessions is not None and left[-1] < 1:
            running = quota.sessions - left[-1]
            yield UnmetCondition(
                UnmetKind.QUOTA, (), 0, quota.scope, quota.name, "", 1, running, quota.sessions
            )
        for index, (slot, limit) in enumerate(self._limits.items()):
            amount = asked.get(slot, 0)
            if amount and amount > left[index]:
                shown, numbers = as_asked(slot, amount, limit - left[index], limit)
                yield UnmetCondition(UnmetKind.QUOTA, (), 0, quota.scope, quota.name, shown, *numbers)


Terms = tuple[tuple[Account, list[int], Needs], ...]


class Quotas:
    """Those of one resource group's users, projects and of itself. Every placement is charged at once."""

    def __init__(self, group: str, quotas: Iterable[Quota]) -> None:
        self._group = group
        self._accounts: dict[tuple[str, str], Account] = {(q.scope, q.name): Account(q) for q in quotas}
        self._of_owner: dict[tuple[str, str], list[Account]] = {}
        self._terms: dict[OwnedShape, Terms] = {}
        self._charged: list[OwnedShape] = []

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def check(self, item: Pending) -> tuple[UnmetCondition, ...]:
        """All limits that ``item`` would exceed now."""
        terms = self._terms.get(item.owned_shape) or self.terms(item.owned_shape)
        for _, left, needs in terms:
            for index, amount in needs:
                if amount > left[index]:
                    asked = item.shape.amounts
                    return tuple([unmet for account, _, _ in terms for unmet in account.exceeded(asked)])
        return ()

    def charge(self, item: Pending) -> Terms:
        """It got a place. Returns the accounts that have less now."""
        terms = self.terms(item.owned_shape)
        if terms:
            self._charged.append(item.owned_shape)
            for _, left, needs in terms:
                for index, amount in needs:
                    left[index] -= amount
        return terms

    def undo(self) -> None:
        """As if nothing had been charged yet."""
        for claim in self._charged:
            for _, left, needs in self.terms(claim):
                for index, amount in needs:
                    left[index] += amount
        self._charged.clear()

    def update(self, quotas: Iterable[Quota]) -> None:
        """These are new, or used otherwise."""
        for quota in quotas:
            account = self._accounts.get((quota.scope, quota.name))
            if account is None:
                self._accounts[quota.scope, quota.name] = Account(quota)
                self._of_owner.clear()
                self._terms.clear()
            elif not account.reset(quota):
                self._terms.clear()

    def terms(self, claim: OwnedShape) -> Terms:
        """The accounts that tell what ``claim`` may have, and what it needs of them."""
        terms = self._terms.get(claim)
        if terms is None:
            owner, shape = (claim.user, claim.project), claim.shape
            found = self._of_owner.get(owner)
            if found is None:
                names = (("user", claim.user), ("project", claim.project), ("group", self._group))
                found = [self._accounts[name] for name in names if name in self._accounts]
                self._of_owner[owner] = found
            terms = self._terms[claim] = tuple([(a, a.left, _needs(a.limited, shape)) for a in found])
        return terms
