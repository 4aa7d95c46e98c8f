"""Placer: the place of one session in a pass, or the hold that explains why it has none."""

from __future__ import annotations

from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import (
    HoldDetails,
    KernelPlace,
    Place,
    Refusal,
    RefusalKind,
)
from moorage.manager.scheduling.placement.feasible_set import diagnose
from moorage.manager.scheduling.placement.gang import Assignment, diagnose_gang, place_gang
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import SelectorFailed
from moorage.manager.scheduling.planning.refusal_cache import CachedRefusal, RefusalCache
from moorage.manager.scheduling.planning.reserved_nodes import ReservedNodes

# Skips NamedTuple.__new__, which is a Python function, because one place is created per placed
# session.
_new = tuple.__new__


class Placer:
    """Tries unreserved nodes first, then ``reserved`` ones as far as their guards admit the
    session. A place is allocated in the pool immediately; a refusal is cached for sessions that
    request as much or more."""

    def __init__(
        self,
        pool: NodePool,
        policy: Policy,
        now: int,
        *,
        refusals: RefusalCache,
        reserved: ReservedNodes,
    ) -> None:
        self._pool = pool
        self._fraction = policy.fraction
        self._now = now
        self._refusals = refusals
        self._reserved = reserved

    def try_fast(self, item: Pending) -> Place | HoldDetails:
        """Like ``try_any``, for the common case in which the best node by score can take the
        session."""
        pool = self._pool
        request = pool.request(item.shape)
        known = self._refusals.find(item, request.demand)
        if known is not None and known.unchecked <= self._reserved.guards_of.keys():
            return self._try_reserved(item, known)

        changed = self._refusals.nodes_to_try(item.shape)
        node = pool.best(request) if changed is None else pool.best_among(changed, request, item)
        if node is None:
            return self._try_reserved(item, self._refuse(item, request.demand))

        allocations = pool.allocate_request(
            node, request, None if item.time_limit is None else self._now + item.time_limit
        )
        return _new(
            Place,
            (item.session_id, item.kernel_id, item.revision, node.agent.agent_id, allocations, ()),
        )

    def try_any(self, item: Pending) -> Place | HoldDetails:
        try:
            found = self._try_gang(item) if not item.shape.single_kernel else self._try_single(item)
        except SelectorFailed as error:
            agents = len(self._pool.feasible_set(item.shape.constraints).schedulable)
            refusals = (Refusal(RefusalKind.SELECTOR, str(error), agents=agents),)
            return HoldDetails(Reason.SELECTOR_FAILED, refusals)

        return self._assign(item, found) if isinstance(found, list) else found

    def _try_reserved(self, item: Pending, refusal: CachedRefusal) -> Place | HoldDetails:
        found = self._on_reserved_nodes(item, refusal)
        return self._assign(item, found) if isinstance(found, list) else found

    def _assign(self, item: Pending, assignment: Assignment) -> Place:
        ends_at = self._ends_at(item)
        for node, allocations in assignment:
            self._reserved.charge(node, allocations, ends_at)
            self._pool.assign(node, allocations, ends_at)
            self._pool.record_choice(item, node)
        return _place(item, assignment)

    def _try_single(self, item: Pending) -> Assignment | Place | HoldDetails:
        shape = item.shape
        pool = self._pool
        demand = pool.with_kernels(shape.total)
        known = self._refusals.find(item, demand)
        if known is None or not known.unchecked <= self._reserved.guards_of.keys():
            changed = self._refusals.nodes_to_try(shape) if item.unconstrained else None
            if changed is None:
                node = pool.choose(item, demand)
            else:
                node = pool.best_among(changed, pool.request(shape), item)

            if node is not None:
                allocations = pool.allocate(node, demand, self._ends_at(item))
                pool.record_choice(item, node)
                agent_id = node.agent.agent_id
                return Place(
                    item.session_id,
                    item.kernel_id,
                    item.revision,
                    agent_id,
                    allocations=allocations,
                )

            known = self._refuse(item, demand)

        return self._on_reserved_nodes(item, known)

    def _refuse(self, item: Pending, demand: Demand) -> CachedRefusal:
        """Record that no unreserved node can take it."""
        pool = self._pool
        shape = item.shape
        feasible = pool.feasible_set(shape.constraints)
        known = self._refusals.restore(shape) if item.unconstrained else None
        if known is None:
            infeasibility = diagnose(
                feasible,
                item,
                shape=shape,
                demand=demand,
                quantized=pool.quantized,
                version=pool.version,
            )
            known = self._refusals.add(item, demand, infeasibility)

        reserved = self._reserved.guards_of.keys() & feasible.schedulable_ranks
        known.leave_unchecked(rank for rank in reserved if pool.nodes[rank].fits(demand))
        return known

    def _try_gang(self, item: Pending) -> Assignment | HoldDetails:
        assignment = place_gang(self._pool, item, self._fraction)
        if assignment is not None:
            return assignment
        return self._on_reserved_nodes(
            item, CachedRefusal(*diagnose_gang(self._pool, item, self._fraction))
        )

    def _on_reserved_nodes(self, item: Pending, refusal: CachedRefusal) -> Assignment | HoldDetails:
        if refusal.pass_number != self._refusals.pass_number:
            refusal.begin_pass(self._refusals.pass_number)
        return self._reserved.admit(item, refusal, self._ends_at(item))

    def _ends_at(self, item: Pending) -> int | None:
        return None if item.time_limit is None else self._now + item.time_limit


def _place(item: Pending, assignment: Assignment) -> Place:
    (node, allocations), *rest = assignment
    sub_kernels = tuple(
        KernelPlace(kernel.kernel_id, other.agent.agent_id, its_allocations)
        for kernel, (other, its_allocations) in zip(item.sub_kernels, rest, strict=True)
    )
    return Place(
        item.session_id,
        item.kernel_id,
        item.revision,
        node.agent.agent_id,
        allocations=allocations,
        sub_kernels=sub_kernels,
    )
