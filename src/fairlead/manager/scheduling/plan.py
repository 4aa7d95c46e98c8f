"""The decision of one pass over one resource group: the same snapshot and policy give the same plan."""

from __future__ import annotations

from fairlead.common.ids import SessionId
from fairlead.common.reasons import Reason
from fairlead.manager.scheduling.answer import Hold, Place, Plan
from fairlead.manager.scheduling.choose import Bench
from fairlead.manager.scheduling.fit import Room, demand_of
from fairlead.manager.scheduling.memo import NoFit, judge
from fairlead.manager.scheduling.model import Pending, Snapshot
from fairlead.manager.scheduling.order import order
from fairlead.manager.scheduling.policy import Policy


def plan(snapshot: Snapshot, policy: Policy, now: int = 0) -> Plan:
    """Answer every pending session of ``snapshot`` once, with a place or with a hold that says why not.

    ``now``: unix microseconds.

    A session refused for capacity ends the pass when the head blocks (``strict``, or ``skip`` that never
    skips): those behind it are held untried. Any other refusal blocks nobody and counts no retry.
    """
    agents = sorted(snapshot.agents, key=lambda agent: agent.agent_id)
    bench = Bench([Room(agent, rank) for rank, agent in enumerate(agents)], policy.agent_selection)
    refused = NoFit()
    places: list[Place] = []
    holds: list[Hold] = []
    blocker: SessionId | None = None
    for item in order(snapshot.pending, policy):
        if blocker is not None:
            holds.append(Hold(item.session_id, Reason.NO_CAPACITY, attempted=False, behind=blocker))
            continue
        answer = _try(item, bench, refused)
        if isinstance(answer, Place):
            places.append(answer)
            continue
        holds.append(answer)
        if answer.capacity and policy.head_blocks:
            blocker = answer.session_id
    return Plan(tuple(places), tuple(holds))


def _try(item: Pending, bench: Bench, refused: NoFit) -> Place | Hold:
    demand = demand_of(item.slots)
    known = refused.find(item, demand)
    if known is None:
        room = bench.choose(item, demand)
        if room is not None:
            takes = bench.book(room, demand)
            return Place(item.session_id, item.kernel_id, item.revision, room.agent.agent_id, takes)
        known = refused.add(item, demand, judge(bench.rooms, item, demand))
    verdict, refusals = known
    capacity = verdict.reason is Reason.NO_CAPACITY
    return Hold(item.session_id, verdict.reason, refusals, capacity=capacity)
