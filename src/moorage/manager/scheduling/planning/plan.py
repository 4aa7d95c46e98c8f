"""``plan``: one scheduling pass over one resource group, from scratch."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.manager.scheduling.core.model import Snapshot
from moorage.manager.scheduling.core.order import pending_queue
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import Plan
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import Selector
from moorage.manager.scheduling.planning.refusal_cache import RefusalCache
from moorage.manager.scheduling.planning.scheduling_pass import SchedulingPass


def plan(
    snapshot: Snapshot,
    policy: Policy,
    now: int = 0,
    selectors: Mapping[str, Selector] | None = None,
) -> Plan:
    """Plan one place or hold for every pending session of ``snapshot``; a hold names its reason.

    ``now``: Unix microseconds. ``selectors``: custom selectors by name, for policies that use one.

    ``policy.hol`` decides how a session that was refused for lack of capacity affects those behind
    it. Any other refusal blocks no other session and does not count as a retry.
    """
    pool = NodePool(snapshot.agents, policy, snapshot.cursors, selectors)
    quotas = Quotas(snapshot.group, snapshot.quotas)
    scheduling_pass = SchedulingPass(
        policy, now, pool=pool, quotas=quotas, refusals=RefusalCache(pool.quantized)
    )
    scheduling_pass.run(
        pending_queue(
            snapshot.pending, policy, agents=snapshot.agents, usage=snapshot.usage, now=now
        )
    )

    return scheduling_pass.plan()
