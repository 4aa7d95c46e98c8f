"""Cluster sessions, all kernels or none. single-node: all on one agent; multi-node: each on its own."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit import capacity_when_empty, fit_all
from moorage.manager.scheduling.core.demand import SHARES_SUFFIX, Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.results import Refusal, RefusalKind
from moorage.manager.scheduling.placement.feasible_set import judge, wanted
from moorage.manager.scheduling.placement.free_capacity import NodeState, Takes
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.planning.refusal_cache import Answer

# For each kernel, the main one first.
Spots = list[tuple[NodeState, Takes]]


def at_least(demands: Sequence[Demand]) -> Demand:
    """What an agent must have free to hold them all: necessary, and cheap to look for. Parts of devices may
    share one, so of these only the largest counts."""
    total: dict[str, int] = {}
    parts: dict[str, int] = {}
    for demand in demands:
        for slot, amount in demand:
            part = amount % 1000 if slot.endswith(SHARES_SUFFIX) else 0
            total[slot] = total.get(slot, 0) + amount - part
            parts[slot] = max(parts.get(slot, 0), part)
    return tuple((slot, amount + parts[slot]) for slot, amount in total.items())


def place_gang(bench: NodePool, item: Pending, fraction: str) -> Spots | None:
    """Where its kernels go, on agents that are kept for nobody. Raises ``SelectorFailed``."""
    demands = item.shape.demands
    if item.shape.mode == "single-node":
        return _on_one(bench, item, fraction)
    sized = [bench.demand(demand) for demand in demands]
    rooms = _each_its_own(bench, item, sized)
    if rooms is None:
        return None
    return [(room, room.pick(demand, fraction)) for room, demand in zip(rooms, sized, strict=True)]


def _on_one(bench: NodePool, item: Pending, fraction: str) -> Spots | None:
    demands = item.shape.demands
    for room in bench.offers(item, bench.demand(at_least(demands), len(demands))):
        takes = room.fit_together([bench.demand(demand) for demand in demands], fraction)
        if takes is not None:
            return [(room, each) for each in takes]
    return None


def _each_its_own(bench: NodePool, item: Pending, demands: Sequence[Demand]) -> list[NodeState] | None:
    offers: dict[Demand, list[NodeState]] = {}
    for demand in demands:
        if demand not in offers:
            # Who has as many agents to choose from as there are kernels always finds one of its own.
            offers[demand] = bench.best(item, demand, len(demands))
    found = match([[room.rank for room in offers[demand]] for demand in demands])
    return None if found is None else [bench.rooms[rank] for rank in found]


def match(choices: Sequence[Sequence[int]]) -> list[int] | None:
    """One of its choices for each, no two the same, or None if there is no such way. Who is first in the row
    (and, of equal ones, prefers it) keeps what it would like as long as the others can give way."""
    holder: dict[int, int] = {}

    def settle(who: int, seen: set[int]) -> bool:
        for choice in choices[who]:
            if choice not in holder:
                holder[choice] = who
                return True
        for choice in choices[who]:
            if choice not in seen:
                seen.add(choice)
                if settle(holder[choice], seen):
                    holder[choice] = who
                    return True
        return False

    # Few choices first: they can give way least.
    for who in sorted(range(len(choices)), key=lambda index: (len(choices[index]), index)):
        if not settle(who, set()):
            return None
    chosen = {who: choice for choice, who in holder.items()}
    return [chosen[who] for who in range(len(choices))]


def judge_gang(bench: NodePool, item: Pending, fraction: str) -> Answer:
    """Why it got nothing: as one kernel would be told, or that it is only together that they do not fit."""
    demands = [bench.demand(demand) for demand in item.shape.demands]
    single = item.shape.mode == "single-node"
    asked = bench.demand(at_least(item.shape.demands), len(demands)) if single else max(demands)
    crowd = bench.crowd(item.shape.constraints)
    verdict = judge(crowd, item, item.shape, asked, bench.grained, bench.moves)
    if verdict.reason is Reason.INSUFFICIENT_RESOURCES:
        wanting = [room for room in crowd.serving if wanted(item, room, bench.grained)]
        if not _together(wanting, demands, single, fraction):
            verdict.reason = Reason.INFEASIBLE
    refusals = verdict.refusals(asked)
    fitting = sum(1 for _ in bench.offers(item, asked))
    if fitting:
        # Each of these could take one of its kernels, or all by the sum of their sizes.
        refusals = (
            *(refusal for refusal in refusals if refusal.kind is not RefusalKind.RESERVED or refusal.slot),
            Refusal(RefusalKind.TOGETHER, "", len(demands), fitting, fitting),
        )
    return Answer(verdict, refusals)


def _together(rooms: Sequence[NodeState], demands: Sequence[Demand], single: bool, fraction: str) -> bool:
    """Whether they could ever fit all at once, on agents that are empty."""
    if single:
        return any(fit_all(capacity_when_empty(room, ill=True), tuple(demands), fraction) for room in rooms)
    able = {d: [r.rank for r in rooms if r.could_ever_fit(d)][: len(demands)] for d in set(demands)}
    return match([able[demand] for demand in demands]) is not None
