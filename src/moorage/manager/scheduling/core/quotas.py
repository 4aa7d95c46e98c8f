"""Quotas: what remains of each limit while a plan is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from moorage.manager.scheduling.core.demand import in_request_units, in_shares
from moorage.manager.scheduling.core.model import Pending, Quota
from moorage.manager.scheduling.core.results import UnmetCondition, UnmetKind
from moorage.manager.scheduling.core.shape import OwnedShape, counted, user_of_qos

# (index into ``QuotaBalance.remaining``, amount) for each limit against which an owned shape is
# counted. Limits on slots that it does not request are omitted.
Cost = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class LimitedSlots:
    """The limited resources of a quota: slots, and possibly sessions and node-hours. Interned,
    because most quotas share one."""

    slots: tuple[str, ...]
    sessions: bool
    node_seconds: bool


@lru_cache(maxsize=65_536)
def _limited_slots(slots: tuple[str, ...], sessions: bool, node_seconds: bool) -> LimitedSlots:
    return LimitedSlots(slots, sessions, node_seconds)


@lru_cache(maxsize=65_536)
def _cost(limited: LimitedSlots, owned_shape: OwnedShape) -> Cost:
    held = counted(owned_shape)
    amounts = [held.get(slot, 0) for slot in limited.slots]
    amounts += [0 if owned_shape.system else 1] if limited.sessions else []
    amounts += (
        [0 if owned_shape.system else owned_shape.node_seconds] if limited.node_seconds else []
    )
    return tuple([(index, amount) for index, amount in enumerate(amounts) if amount])


@lru_cache(maxsize=65_536)
def _limits(
    items: tuple[tuple[str, int], ...], sessions: bool, node_seconds: bool
) -> tuple[Mapping[str, int], LimitedSlots]:
    limits = in_shares(dict(items))
    return limits, _limited_slots(tuple(limits), sessions, node_seconds)


class QuotaBalance:
    """One quota. ``remaining``: what remains of each limited slot, then of the sessions if limited,
    then of the node-seconds if limited.

    ``remaining`` is updated in place and never replaced: ``Quotas`` keeps references to it.
    """

    __slots__ = ("_limits", "limited", "quota", "remaining")

    def __init__(self, quota: Quota) -> None:
        self.remaining: list[int] = []
        self.limited = _limited_slots((), False, False)
        self.reset(quota)

    def reset(self, quota: Quota) -> bool:
        """Replace the quota or its usage. Returns whether it limits the same slots as before."""
        before = self.limited
        self.quota = quota
        others = quota.sessions is not None, quota.node_seconds is not None
        self._limits, self.limited = _limits(tuple(quota.limits.items()), *others)
        used = in_shares(quota.used)
        self.remaining[:] = [limit - used.get(slot, 0) for slot, limit in self._limits.items()]
        if quota.sessions is not None:
            self.remaining.append(quota.sessions - quota.running)
        if quota.node_seconds is not None:
            self.remaining.append(quota.node_seconds - quota.node_seconds_used)

        return before is self.limited

    def exceeded(self, owned_shape: OwnedShape) -> Iterable[UnmetCondition]:
        quota = self.quota
        remaining = self.remaining
        kind = UnmetKind.QUOTA
        amounts = counted(owned_shape)
        slots = len(self._limits)
        if quota.sessions is not None and not owned_shape.system and remaining[slots] < 1:
            running = quota.sessions - remaining[slots]
            yield UnmetCondition(
                kind,
                (),
                until=0,
                scope=quota.scope,
                name=quota.name,
                slot="",
                requested=1,
                used=running,
                limit=quota.sessions,
            )

        for index, (slot, limit) in enumerate(self._limits.items()):
            amount = amounts.get(slot, 0)
            if amount and amount > remaining[index]:
                shown, numbers = in_request_units(slot, amount, limit - remaining[index], limit)
                yield UnmetCondition(kind, (), 0, quota.scope, quota.name, shown, *numbers)

        asked = 0 if owned_shape.system else owned_shape.node_seconds
        hours = quota.node_seconds
        if asked and hours is not None and asked > remaining[-1]:
            kind = UnmetKind.NODE_HOURS
            used = hours - remaining[-1]
            yield UnmetCondition(
                kind,
                (),
                until=quota.month_ends,
                scope=quota.scope,
                name=quota.name,
                slot="",
                requested=asked,
                used=used,
                limit=hours,
            )


# The quotas that apply to an owned shape: each with its ``remaining`` (which saves an attribute
# access) and the shape's cost.
Charges = tuple[tuple[QuotaBalance, list[int], Cost], ...]


class Quotas:
    """Quotas of one resource group, its users and its projects, its limits per user, and the limits
    of QoS. A placement is charged immediately."""

    def __init__(self, group: str, quotas: Iterable[Quota]) -> None:
        self._group = group
        self._balances: dict[tuple[str, str], QuotaBalance] = {
            (quota.scope, quota.name): QuotaBalance(quota) for quota in quotas
        }
        self._of_owner: dict[tuple[str, str, str], list[QuotaBalance]] = {}
        self._charges: dict[OwnedShape, Charges] = {}
        self._charged: list[OwnedShape] = []

    def __bool__(self) -> bool:
        return bool(self._balances)

    def check(self, item: Pending) -> tuple[UnmetCondition, ...]:
        """All limits that ``item`` would exceed now."""
        charges = self._charges.get(item.owned_shape) or self.charges(item.owned_shape)
        for _, remaining, cost in charges:
            for index, amount in cost:
                if amount > remaining[index]:
                    shape = item.owned_shape
                    return tuple(
                        [unmet for balance, _, _ in charges for unmet in balance.exceeded(shape)]
                    )

        return ()

    def charge(self, item: Pending) -> Charges:
        """Charge a placement. Returns the quotas that now have less left."""
        charges = self.charges(item.owned_shape)
        if charges:
            self._charged.append(item.owned_shape)
            for _, remaining, cost in charges:
                for index, amount in cost:
                    remaining[index] -= amount
        return charges

    def undo_charges(self) -> None:
        """Refund everything that was charged."""
        for owned_shape in self._charged:
            for _, remaining, cost in self.charges(owned_shape):
                for index, amount in cost:
                    remaining[index] += amount
        self._charged.clear()

    def update(self, quotas: Iterable[Quota]) -> None:
        """Add these quotas, or replace those with the same scope and name."""
        for quota in quotas:
            balance = self._balances.get((quota.scope, quota.name))
            if balance is None:
                self._balances[quota.scope, quota.name] = QuotaBalance(quota)
                self._of_owner.clear()
                self._charges.clear()
            elif not balance.reset(quota):
                self._charges.clear()

    def charges(self, owned_shape: OwnedShape) -> Charges:
        """Quotas that apply to ``owned_shape``, each with the shape's cost."""
        charges = self._charges.get(owned_shape)
        if charges is None:
            owner = owned_shape.user, owned_shape.project, owned_shape.qos
            balances = self._of_owner.get(owner)
            if balances is None:
                names = [
                    ("user", owned_shape.user),
                    ("group-user", owned_shape.user),
                    ("project", owned_shape.project),
                    ("group", self._group),
                ]
                if qos := owned_shape.qos:
                    names += [("qos", qos), ("qos-user", user_of_qos(qos, owned_shape.user))]

                balances = [self._balances[name] for name in names if name in self._balances]
                self._of_owner[owner] = balances

            charges = tuple([(b, b.remaining, _cost(b.limited, owned_shape)) for b in balances])
            self._charges[owned_shape] = charges

        return charges
