"""Planner cache: one incremental planner per resource group, updated with the difference between
two snapshots.

The store reports which agents and pending sessions may have changed. Without this report, all of
them are compared; most are the same objects as in the previous pass, so identity is compared first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.scheduling.core.model import (
    AgentState,
    Pending,
    PendingChanges,
    Quota,
    QuotaScope,
    Snapshot,
)
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Plan
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner
from moorage.manager.scheduling.placement.selector_plugin import Selector


@dataclass(slots=True)
class _CachedPlanner:
    """The planner and the snapshot that it was last updated with. ``number``: the snapshot number
    of its pending sessions. ``agents_number``: the same for its agents."""

    policy: Policy
    selectors: Mapping[str, Selector]
    planner: IncrementalPlanner
    agents: dict[AgentId, AgentState] = field(default_factory=dict)
    pending: dict[SessionId, Pending] = field(default_factory=dict)
    quotas: dict[tuple[QuotaScope, str], Quota] = field(default_factory=dict)
    now: int = 0
    number: int | None = None
    agents_number: int | None = None
    # Users and projects that were charged in the last plan. Their quotas are reported even if they
    # have the same values again, because the charges, which may not have been committed, held back
    # other sessions.
    charged: set[str] = field(default_factory=set)

    def update(self, snapshot: Snapshot) -> None:
        self._update_agents(snapshot)
        changes = snapshot.changes
        number = self.number
        if changes is not None and changes.number - 1 == number:
            self._update_changed(changes)
        else:
            self._update_sessions(snapshot.pending)

        self.number = None if changes is None else changes.number
        quotas = {(quota.scope, quota.name): quota for quota in snapshot.quotas}
        self.planner.update_quotas(
            quota
            for name, quota in quotas.items()
            if quota.scope == "group"
            or quota.name in self.charged
            or ((known := self.quotas.get(name)) is not quota and known != quota)
        )
        self.planner.update_cursors_and_usage(snapshot.cursors, snapshot.usage)
        self.quotas = quotas

    def _update_agents(self, snapshot: Snapshot) -> None:
        known = self.agents
        changes = snapshot.agent_changes
        number = self.agents_number
        self.agents_number = None if changes is None else changes.number
        gone: Collection[AgentId]
        if changes is not None and changes.number - 1 == number:
            candidates = changes.changed
            gone = [agent_id for agent_id in changes.gone if agent_id in known]
        else:
            candidates = snapshot.agents
            gone = known.keys() - {agent.agent_id for agent in snapshot.agents}

        changed = [a for a in candidates if (old := known.get(a.agent_id)) is not a and old != a]
        self.planner.update_agents(changed, gone)
        for agent_id in gone:
            del known[agent_id]

        known.update({agent.agent_id: agent for agent in candidates})

    def _update_changed(self, changes: PendingChanges) -> None:
        known = self.pending
        changed = [item for item in changes.changed if known.get(item.session_id) != item]
        gone = [session_id for session_id in changes.gone if session_id in known]
        self.planner.update_sessions(changed, gone)
        for session_id in gone:
            del known[session_id]
        known.update({item.session_id: item for item in changed})

    def _update_sessions(self, pending: Sequence[Pending]) -> None:
        known = self.pending
        other = [item for item in pending if known.get(item.session_id) is not item]
        changed = [item for item in other if known.get(item.session_id) != item] if known else other
        stayed = len(pending) - sum(item.session_id not in known for item in other)
        gone: Collection[SessionId] = ()
        if stayed < len(known):
            gone = known.keys() - {item.session_id for item in pending}

        self.planner.update_sessions(changed, gone)
        for session_id in gone:
            del known[session_id]

        known.update({item.session_id: item for item in other})

    def plan(self, now: int) -> Plan:
        self.now = max(self.now, now)  # the planner's time never goes back, even if the clock does
        made = self.planner.plan(self.now)
        placed = [self.pending[place.session_id] for place in made.places]
        self.charged = {name for item in placed for name in (item.user, item.project)}
        return made


class PlannerCache:
    """``plan`` makes the same decisions as the function of that name, but its plan lists only the
    examined sessions: a session without a place or a hold waits as before."""

    def __init__(self) -> None:
        self._cached: dict[str, _CachedPlanner] = {}

    def plan(
        self,
        snapshot: Snapshot,
        policy: Policy,
        now: int,
        selectors: Mapping[str, Selector] | None = None,
    ) -> Plan:
        cached = self._cached.get(snapshot.group)
        selectors = selectors or {}

        # Planners do not support the removal of a quota.
        removed = cached is not None and cached.quotas.keys() - {
            (q.scope, q.name) for q in snapshot.quotas
        }
        if cached is None or removed or (cached.policy, cached.selectors) != (policy, selectors):
            cached = _CachedPlanner(
                policy, selectors, IncrementalPlanner(snapshot.group, policy, selectors)
            )
            self._cached[snapshot.group] = cached

        cached.update(snapshot)
        return cached.plan(now)

    def examined(self, snapshot: Snapshot, policy: Policy) -> int:
        """Approximate upper limit on the number of pending sessions that the next plan of
        ``snapshot`` examines."""
        cached = self._cached.get(snapshot.group)
        changes = snapshot.changes
        if cached is None or changes is None or changes.number - 1 != cached.number:
            return len(snapshot.pending)
        if not cached.planner.is_incremental or cached.policy != policy:
            return len(snapshot.pending)
        return len(changes.changed) + len(changes.gone)

    def pending(self, group: str) -> Mapping[SessionId, Pending]:
        """The pending sessions for which the group's last plan was made."""
        return self._cached[group].pending

    def forget(self, group: str) -> None:
        """Plan the group from scratch next time, with a place or a hold for every session."""
        self._cached.pop(group, None)
