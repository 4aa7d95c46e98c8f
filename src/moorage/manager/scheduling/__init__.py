"""Scheduler of one resource group: ``plan(snapshot, policy) -> Plan``. Pure functions over frozen
values.

The layers, each importing only those below it (``.importlinter``):

* ``incremental``: planners that are kept between passes and examine only what changed
* ``planning``: one pass; refusal cache and preemption; ``plan``
* ``backfill``: reservations, and what may start ahead of them
* ``placement``: feasible nodes, their scores, and devices
* ``core``: input, policy and results; queue order, start conditions and quotas

The loop that takes snapshots and commits plans is ``manager.loops.scheduler``. The hold of a
session that was not placed is stored by ``manager.store.scheduling``; ``manager.explain`` computes
a full explanation on request. A plan may assign devices that have been taken since its snapshot;
the constraint ``used_within_capacity`` refuses them when ``session_place.sql`` commits.
"""

from moorage.manager.scheduling.core.messages import refusal_message
from moorage.manager.scheduling.core.model import AgentState, DeviceState, Pending, Snapshot
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import HeldSession, Place, Plan
from moorage.manager.scheduling.planning.plan import plan

__all__ = [
    "AgentState",
    "DeviceState",
    "HeldSession",
    "Pending",
    "Place",
    "Plan",
    "Policy",
    "Snapshot",
    "plan",
    "refusal_message",
]
