"""The decision of one pass over one resource group: the same snapshot and policy give the same plan."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.manager.scheduling.core.model import Snapshot
from moorage.manager.scheduling.core.order import line
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import Plan
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import Selector
from moorage.manager.scheduling.planning.refusal_cache import RefusalCache
from moorage.manager.scheduling.planning.scheduling_pass import SchedulingPass


def plan(
    snapshot: Snapshot, policy: Policy, now: int = 0, selectors: Mapping[str, Selector] | None = None
) -> Plan:
    """Answer every pending session of ``snapshot`` once, with a place or with a hold that says why not.

    ``now``: unix microseconds. ``selectors``: custom ones by their name, where the policy asks for one.

    What a session refused for capacity does to those behind it is the policy's (see there). Any other refusal
    blocks nobody and counts no retry.
    """
    bench = NodePool(snapshot.agents, policy, snapshot.cursors, selectors)
    made = SchedulingPass(
        policy, now, bench, Quotas(snapshot.group, snapshot.quotas), RefusalCache(bench.grained)
    )
    made.answer_all(line(snapshot.pending, policy, snapshot.agents, snapshot.usage, now))
    return made.plan()
