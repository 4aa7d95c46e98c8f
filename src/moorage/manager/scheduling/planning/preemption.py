"""Preemption: the victims of a session of higher priority, as few and as unimportant as possible."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.backfill.earliest_fit import awaited_sessions, capacity_at
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending, Running
from moorage.manager.scheduling.core.policy import Policy, Preemption
from moorage.manager.scheduling.core.results import Reservation, Victim
from moorage.manager.scheduling.placement.feasible_set import accepts_node
from moorage.manager.scheduling.placement.free_capacity import FreeCapacity
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState

# Blocked sessions of a pass that search for victims; each search examines every node. The others wait for the
# next pass.
MAX_SEARCHES = 16

PreemptionResult = tuple[Reservation, list[ReservationGuard], list[Victim]]


class Preempter:
    """The victims of one pass. No session is stopped twice, and no node is vacated for two sessions."""

    def __init__(self, pool: NodePool, policy: Policy, rules: Preemption, now: int) -> None:
        self._pool, self._policy, self._rules, self._now = pool, policy, rules, now
        self._victims: set[SessionId] = set()
        self._searches = 0
        # The highest priority that found no victims, by what the search depends on.
        self._failed: dict[object, int] = {}

    def search(self, item: Pending) -> PreemptionResult | None:
        """Victims for ``item``, which capacity refused, and a reservation of what they release. No victims if
        it only has to wait for sessions that terminate already. None if preemption does not help."""
        name = (item.shape, item.designated, item.avoid)
        if self._searches >= MAX_SEARCHES or self._failed.get(name, -1) >= item.priority:
            return None
        self._searches += 1
        demands = tuple(self._pool.with_kernels(demand) for demand in item.shape.demands)
        single_node = item.shape.mode == "single-node"
        parts: list[tuple[Demand, ...]] = [demands] if single_node else [(d,) for d in demands]
        found: dict[int, tuple[NodeState, list[Running]]] = {}
        for index in sorted(range(len(parts)), key=lambda i: (parts[i], -i), reverse=True):
            cheapest = self._cheapest_node(item, parts[index], {node.rank for node, _ in found.values()})
            if cheapest is None:
                self._failed[name] = item.priority
                return None
            found[index] = cheapest
        return self._result(item, parts, [found[index] for index in range(len(parts))])

    def _result(
        self, item: Pending, parts: list[tuple[Demand, ...]], found: list[tuple[NodeState, list[Running]]]
    ) -> PreemptionResult:
        rules, now = self._rules, self._now
        victims = {victim.session_id: victim for _, chosen in found for victim in chosen}
        starts_at = now + rules.grace if victims else now
        for node, _ in found:
            ends = [r.ends_at or now + rules.grace for r in node.agent.running if r.terminating]
            starts_at = max([starts_at, *(max(at, now) for at in ends)])
        self._victims |= victims.keys()
        guards = []
        for (node, chosen), demands in zip(found, parts, strict=True):
            capacity = capacity_at(node, starts_at, now)
            ending = {running.kernel_id: running for running in (*chosen, *_terminating(node))}
            for running in ending.values():
                if running.ends_at is None or max(running.ends_at, now) > starts_at:
                    capacity.release(running.allocations)
            guards.append(self._guard(item, node, starts_at, demands, capacity))
        nodes = [node for node, _ in found]
        waits_for = dict.fromkeys([*awaited_sessions(nodes, starts_at, now), *victims])
        ids = tuple(node.agent.agent_id for node in nodes)
        reservation = Reservation(item.session_id, ids, starts_at, "preemption", tuple(waits_for))
        stopped = [Victim(name, item.session_id, rules.how, rules.grace) for name in victims]
        return reservation, guards, stopped

    def _guard(
        self,
        item: Pending,
        node: NodeState,
        starts_at: int,
        demands: tuple[Demand, ...],
        capacity: FreeCapacity,
    ) -> ReservationGuard:
        fraction = self._policy.fraction
        return ReservationGuard(item.session_id, node, starts_at, demands, lambda: capacity, fraction)

    def _cheapest_node(
        self, item: Pending, demands: tuple[Demand, ...], taken: set[int]
    ) -> tuple[NodeState, list[Running]] | None:
        """By the highest priority among the victims, then by their number, then by rank."""
        best: tuple[tuple[int, int, int], NodeState, list[Running]] | None = None
        for node in self._pool.feasible_set(item.shape.constraints).schedulable:
            if node.reserved or node.rank in taken or not accepts_node(item, node, self._pool.quantized):
                continue
            if not all(node.could_ever_fit(demand) for demand in demands):
                continue
            victims = self._victims_on(node, item, demands)
            if victims is None:
                continue
            cost = (
                max((victim.priority for victim in victims), default=-1),
                len({victim.session_id for victim in victims}),
                node.rank,
            )
            if best is None or cost < best[0]:
                best = cost, node, victims
        return None if best is None else best[1:]

    def _victims_on(
        self, node: NodeState, item: Pending, demands: tuple[Demand, ...]
    ) -> list[Running] | None:
        """The victims on one node, each of them necessary; None if all candidates together do not suffice."""
        capacity, fraction = node.copy(), self._policy.fraction
        for running in _terminating(node):
            capacity.release(running.allocations)
        if capacity.fits_all(demands, fraction):
            return []
        victims: list[Running] = []
        for running in self._candidates(node, item):
            victims.append(running)
            capacity.release(running.allocations)
            if capacity.fits_all(demands, fraction):
                break
        else:
            return None
        # Spare those that turn out to be unnecessary, the most important ones first.
        for running in victims[:-1][::-1]:
            capacity.deduct(running.allocations)
            if capacity.fits_all(demands, fraction):
                victims.remove(running)
            else:
                capacity.release(running.allocations)
        return victims

    def _candidates(self, node: NodeState, item: Pending) -> Iterable[Running]:
        """What may be stopped on the node, cheapest first."""
        rules, now = self._rules, self._now
        allowed = [
            running
            for running in node.agent.running
            if running.preemptible
            and not running.terminating
            and running.priority < item.priority
            and running.session_id not in self._victims
            and now - running.started_at >= rules.min_runtime
        ]
        by_age = -1 if rules.order == "newest" else 1

        def cost(running: Running) -> tuple[int, int, int, str]:
            devices = sum(allocation.amount for allocation in running.allocations if allocation.device_id)
            size = devices if rules.order == "smallest" else 0
            return running.priority, size, by_age * running.started_at, running.kernel_id

        return sorted(allowed, key=cost)


def _terminating(node: NodeState) -> list[Running]:
    return [running for running in node.agent.running if running.terminating]
