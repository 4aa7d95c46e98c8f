"""A planner that stays for each resource group, told what changed by comparing the last two snapshots.

Comparing costs a look at each agent and each session that waits, and planning would cost several: most agents
of most passes are the very objects of the pass before (the store reads again only what changed).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.scheduling.core.model import AgentState, Pending, Quota, Snapshot
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Plan
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner
from moorage.manager.scheduling.placement.selector_plugin import Selector


@dataclass(slots=True)
class _Kept:
    policy: Policy
    selectors: Mapping[str, Selector]
    planner: IncrementalPlanner
    agents: dict[AgentId, AgentState] = field(default_factory=dict)
    pending: dict[SessionId, Pending] = field(default_factory=dict)
    quotas: dict[tuple[Literal["user", "project", "group"], str], Quota] = field(default_factory=dict)
    now: int = 0
    # Whose quotas were counted on in the last pass: even where all is as before by now, others waited for it.
    counted: set[str] = field(default_factory=set)

    def tell(self, snapshot: Snapshot) -> None:
        agents = {agent.agent_id: agent for agent in snapshot.agents}
        changed = [a for a in snapshot.agents if (old := self.agents.get(a.agent_id)) is not a and old != a]
        self.planner.update_agents(changed, self.agents.keys() - agents.keys())
        self._tell_sessions(snapshot.pending)
        quotas = {(quota.scope, quota.name): quota for quota in snapshot.quotas}
        self.planner.update_quotas(
            quota
            for name, quota in quotas.items()
            if quota.scope == "group"
            or quota.name in self.counted
            or ((known := self.quotas.get(name)) is not quota and known != quota)
        )
        self.planner.update_cursors_and_usage(snapshot.cursors, snapshot.usage)
        self.agents, self.quotas = agents, quotas

    def _tell_sessions(self, pending: Sequence[Pending]) -> None:
        known = self.pending
        # Mostly they are the very objects of the pass before, and need no comparing.
        other = [item for item in pending if known.get(item.session_id) is not item]
        new = [item for item in other if known.get(item.session_id) != item] if known else other
        stayed = len(pending) - sum(item.session_id not in known for item in other)
        gone: Collection[SessionId] = ()
        if stayed < len(known):
            gone = known.keys() - {item.session_id for item in pending}
        self.planner.update_sessions(new, gone)
        for session_id in gone:
            del known[session_id]
        known.update({item.session_id: item for item in other})

    def decide(self, now: int) -> Plan:
        self.now = max(self.now, now)  # also where the clock was set back
        made = self.planner.decide(self.now)
        placed = [self.pending[place.session_id] for place in made.places]
        self.counted = {name for item in placed for name in (item.user, item.project)}
        return made


class PlannerCache:
    """``plan`` as the function of that name, except that it tells only of sessions that it looked at: who is
    in no answer waits as before."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def plan(
        self, snapshot: Snapshot, policy: Policy, now: int, selectors: Mapping[str, Selector] | None = None
    ) -> Plan:
        kept = self._kept.get(snapshot.group)
        chosen = selectors or {}
        gone = kept is not None and kept.quotas.keys() - {(q.scope, q.name) for q in snapshot.quotas}
        if kept is None or gone or (kept.policy, kept.selectors) != (policy, chosen):
            kept = _Kept(policy, chosen, IncrementalPlanner(snapshot.group, policy, chosen))
            self._kept[snapshot.group] = kept
        kept.tell(snapshot)
        return kept.decide(now)

    def forget(self, group: str) -> None:
        """Plan the group anew the next time, and tell everybody who waits."""
        self._kept.pop(group, None)
