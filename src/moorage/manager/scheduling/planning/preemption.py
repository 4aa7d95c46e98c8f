"""Whom to stop for a session of higher priority: as few and as unimportant as will do, or nobody."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.backfill.earliest_fit import awaited_sessions, capacity_at, fit_all
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending, Running
from moorage.manager.scheduling.core.policy import Policy, Preemption
from moorage.manager.scheduling.core.results import Reservation, Victim
from moorage.manager.scheduling.placement.feasible_set import wanted
from moorage.manager.scheduling.placement.free_capacity import FreeCapacity, NodeState
from moorage.manager.scheduling.placement.node_pool import NodePool

# How many blocked sessions of a pass look for victims: each looks at every agent. The others wait for a pass.
MOST_SEARCHES = 16

Found = tuple[Reservation, list[ReservationGuard], list[Victim]]


class Preempter:
    """The victims of one pass; nobody is stopped twice, and no agent gives for two."""

    def __init__(self, bench: NodePool, policy: Policy, rules: Preemption, now: int) -> None:
        self._bench, self._policy, self._rules, self._now = bench, policy, rules, now
        self._chosen: set[SessionId] = set()
        self._searches = 0
        # Shapes for which nothing was found, with the highest priority that did not find it.
        self._in_vain: dict[object, int] = {}

    def search(self, item: Pending) -> Found | None:
        """Victims for ``item``, which capacity refused, and the room that they leave, kept for it. None of
        them when it only has to wait for those that are being stopped already."""
        name = (item.shape, item.designated, item.avoid)
        if self._searches >= MOST_SEARCHES or self._in_vain.get(name, -1) >= item.priority:
            return None
        self._searches += 1
        demands = tuple(self._bench.demand(demand) for demand in item.shape.demands)
        single = item.shape.mode == "single-node"
        parts: list[tuple[Demand, ...]] = [demands] if single else [(demand,) for demand in demands]
        spots: dict[int, tuple[NodeState, list[Running]]] = {}
        for index in sorted(range(len(parts)), key=lambda i: (parts[i], -i), reverse=True):
            found = self._cheapest(item, parts[index], {room.rank for room, _ in spots.values()})
            if found is None:
                self._in_vain[name] = item.priority
                return None
            spots[index] = found
        return self._found(item, parts, [spots[index] for index in range(len(parts))])

    def _found(
        self, item: Pending, parts: list[tuple[Demand, ...]], spots: list[tuple[NodeState, list[Running]]]
    ) -> Found:
        rules, now = self._rules, self._now
        victims = {victim.session_id: victim for _, chosen in spots for victim in chosen}
        starts = now + rules.grace if victims else now
        for room, _ in spots:
            coming = [r.ends_at or now + rules.grace for r in room.agent.running if r.terminating]
            starts = max([starts, *(max(at, now) for at in coming)])
        self._chosen |= victims.keys()
        guards = []
        for (room, chosen), demands in zip(spots, parts, strict=True):
            stock = capacity_at(room, starts, now)
            gone = {running.kernel_id: running for running in (*chosen, *_ending(room))}
            for running in gone.values():
                if running.ends_at is None or max(running.ends_at, now) > starts:
                    stock.give(running.allocations)
            made = partial(_same, stock)
            guards.append(
                ReservationGuard(item.session_id, room, starts, demands, made, self._policy.fraction)
            )
        rooms = [room for room, _ in spots]
        waits_for = dict.fromkeys([*awaited_sessions(rooms, starts, now), *victims])
        ids = tuple(room.agent.agent_id for room in rooms)
        reservation = Reservation(item.session_id, ids, starts, "preemption", tuple(waits_for))
        stopped = [Victim(name, item.session_id, rules.how, rules.grace) for name in victims]
        return reservation, guards, stopped

    def _cheapest(
        self, item: Pending, demands: tuple[Demand, ...], taken: set[int]
    ) -> tuple[NodeState, list[Running]] | None:
        best: tuple[tuple[int, int, int], NodeState, list[Running]] | None = None
        for room in self._bench.crowd(item.shape.constraints).open_to:
            if room.guarded or room.rank in taken or not wanted(item, room, self._bench.grained):
                continue
            if not all(room.could_ever_fit(demand) for demand in demands):
                continue
            victims = self._on(room, item, demands)
            if victims is None:
                continue
            cost = (
                max((v.priority for v in victims), default=-1),
                len({v.session_id for v in victims}),
                room.rank,
            )
            if best is None or cost < best[0]:
                best = cost, room, victims
        return None if best is None else best[1:]

    def _on(self, room: NodeState, item: Pending, demands: tuple[Demand, ...]) -> list[Running] | None:
        """The victims on one agent, none of them needless; None if all of them together are not enough."""
        stock, fraction = room.copy(), self._policy.fraction
        for running in _ending(room):
            stock.give(running.allocations)
        if fit_all(stock, demands, fraction):
            return []
        victims: list[Running] = []
        for running in self._candidates(room, item):
            victims.append(running)
            stock.give(running.allocations)
            if fit_all(stock, demands, fraction):
                break
        else:
            return None
        for running in victims[:-1][::-1]:
            stock.take(running.allocations)
            if fit_all(stock, demands, fraction):
                victims.remove(running)
            else:
                stock.give(running.allocations)
        return victims

    def _candidates(self, room: NodeState, item: Pending) -> Iterable[Running]:
        rules, now = self._rules, self._now
        allowed = [
            running
            for running in room.agent.running
            if running.preemptible
            and not running.terminating
            and running.priority < item.priority
            and running.session_id not in self._chosen
            and now - running.started >= rules.min_runtime
        ]
        by_age = -1 if rules.order == "newest" else 1

        def cost(running: Running) -> tuple[int, int, int, str]:
            size = sum(take.amount for take in running.allocations if take.device_id)
            smallest = size if rules.order == "smallest" else 0
            return running.priority, smallest, by_age * running.started, running.kernel_id

        return sorted(allowed, key=cost)


def _same(stock: FreeCapacity) -> FreeCapacity:
    return stock


def _ending(room: NodeState) -> list[Running]:
    return [running for running in room.agent.running if running.terminating]
