"""How much of a quota is left while a plan is made."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.manager.scheduling.answer import Unmet, UnmetKind
from fairlead.manager.scheduling.demand import Demand, as_asked, in_shares
from fairlead.manager.scheduling.model import Pending, Quota
from fairlead.manager.scheduling.shape import Shape

_SCOPES = ("user", "project", "group")


class _Entry:
    __slots__ = ("limits", "quota", "running", "used")

    def __init__(self, quota: Quota) -> None:
        self.quota, self.running = quota, quota.running
        self.limits, self.used = in_shares(quota.limits), in_shares(quota.used)

    def exceeded(self, demand: Demand) -> Iterable[Unmet]:
        quota = self.quota
        if quota.sessions is not None and self.running + 1 > quota.sessions:
            yield Unmet(UnmetKind.QUOTA, (), 0, quota.scope, quota.name, "", 1, self.running, quota.sessions)
        for slot, amount in demand:
            limit = self.limits.get(slot)
            used = self.used.get(slot, 0)
            if limit is not None and used + amount > limit:
                shown, numbers = as_asked(slot, amount, used, limit)
                yield Unmet(UnmetKind.QUOTA, (), 0, quota.scope, quota.name, shown, *numbers)

    def charge(self, demand: Demand) -> None:
        self.running += 1
        for slot, amount in demand:
            self.used[slot] = self.used.get(slot, 0) + amount


class Quotas:
    """Those of one resource group's users, projects and of itself. Every placement is charged at once."""

    def __init__(self, group: str, quotas: Iterable[Quota]) -> None:
        self._group = group
        self._entries: dict[tuple[str, str], _Entry] = {
            (quota.scope, quota.name): _Entry(quota) for quota in quotas
        }
        # What was found, by user, project and shape: ten thousand sessions of one user ask the same.
        self._known: dict[tuple[str, str], dict[Shape, tuple[Unmet, ...]]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def check(self, item: Pending) -> tuple[Unmet, ...]:
        """All limits that ``item`` would exceed now."""
        if not self._entries:
            return ()
        owner = (item.user, item.project)
        known = self._known.get(owner)
        if known is None:
            known = self._known[owner] = {}
        found = known.get(item.shape)
        if found is None:
            found = known[item.shape] = tuple(
                unmet for entry in self._of(item) for unmet in entry.exceeded(item.shape.total)
            )
        return found

    def charge(self, item: Pending) -> None:
        if not self._entries:
            return
        for entry in self._of(item):
            entry.charge(item.shape.total)
            quota = entry.quota
            if quota.scope == "group":
                self._known.clear()
            else:
                at = _SCOPES.index(quota.scope)
                for owner in [owner for owner in self._known if owner[at] == quota.name]:
                    self._known[owner].clear()

    def _of(self, item: Pending) -> list[_Entry]:
        names = (("user", item.user), ("project", item.project), ("group", self._group))
        return [entry for name in names if (entry := self._entries.get(name)) is not None]
