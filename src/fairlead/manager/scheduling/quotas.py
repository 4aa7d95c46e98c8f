"""How much of a quota is left while a plan is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.manager.scheduling.answer import Unmet, UnmetKind
from fairlead.manager.scheduling.demand import as_asked, in_shares
from fairlead.manager.scheduling.model import Pending, Quota


class _Entry:
    __slots__ = ("limits", "quota", "running", "used")

    def __init__(self, quota: Quota) -> None:
        self.quota, self.running = quota, quota.running
        self.limits = list(in_shares(quota.limits).items())
        used = in_shares(quota.used)
        self.used = {slot: used.get(slot, 0) for slot, _ in self.limits}

    def allows(self, asked: Mapping[str, int]) -> bool:
        sessions = self.quota.sessions
        if sessions is not None and self.running >= sessions:
            return False
        used = self.used
        for slot, limit in self.limits:  # noqa: SIM110 - asked for every session, and this is faster
            # Asking for nothing of it is no offence, however much is used.
            if slot in asked and used[slot] + asked[slot] > limit:
                return False
        return True

    def exceeded(self, asked: Mapping[str, int]) -> Iterable[Unmet]:
        quota = self.quota
        if quota.sessions is not None and self.running >= quota.sessions:
            yield Unmet(UnmetKind.QUOTA, (), 0, quota.scope, quota.name, "", 1, self.running, quota.sessions)
        for slot, limit in self.limits:
            amount, used = asked.get(slot, 0), self.used[slot]
            if amount and used + amount > limit:
                shown, numbers = as_asked(slot, amount, used, limit)
                yield Unmet(UnmetKind.QUOTA, (), 0, quota.scope, quota.name, shown, *numbers)

    def charge(self, asked: Mapping[str, int], sign: int = 1) -> None:
        self.running += sign
        used = self.used
        for slot in used:
            if slot in asked:
                used[slot] += sign * asked[slot]


class Quotas:
    """Those of one resource group's users, projects and of itself. Every placement is charged at once."""

    def __init__(self, group: str, quotas: Iterable[Quota]) -> None:
        self._group = group
        self._entries: dict[tuple[str, str], _Entry] = {(q.scope, q.name): _Entry(q) for q in quotas}
        self._of_owner: dict[tuple[str, str], list[_Entry]] = {}
        self._charged: list[Pending] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def check(self, item: Pending) -> tuple[Unmet, ...]:
        """All limits that ``item`` would exceed now."""
        if not self._entries:
            return ()
        entries, asked = self._of_owner.get((item.user, item.project)), item.shape.asked
        if entries is None:
            entries = self._of(item)
        for entry in entries:
            if not entry.allows(asked):
                return tuple(unmet for each in entries for unmet in each.exceeded(asked))
        return ()

    def charge(self, item: Pending) -> None:
        if self._entries:
            self._charged.append(item)
            for entry in self._of(item):
                entry.charge(item.shape.asked)

    def undo(self) -> None:
        """As if nothing had been charged yet."""
        for item in self._charged:
            for entry in self._of(item):
                entry.charge(item.shape.asked, -1)
        self._charged.clear()

    def update(self, quotas: Iterable[Quota]) -> None:
        """These are new, or used otherwise."""
        for quota in quotas:
            if (quota.scope, quota.name) not in self._entries:
                self._of_owner.clear()
            self._entries[quota.scope, quota.name] = _Entry(quota)
            owners = [owner for owner in self._of_owner if quota.scope == "group" or quota.name in owner]
            for owner in owners:
                del self._of_owner[owner]

    def _of(self, item: Pending) -> list[_Entry]:
        owner = (item.user, item.project)
        found = self._of_owner.get(owner)
        if found is None:
            names = (("user", item.user), ("project", item.project), ("group", self._group))
            found = self._of_owner[owner] = [self._entries[name] for name in names if name in self._entries]
        return found
