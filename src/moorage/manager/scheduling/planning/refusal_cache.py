"""Refusal cache: requests that need not be tried again.

Free capacity only shrinks during a pass, so a refused request stays refused, and a request for at
least as much with the same constraints is refused as well. Ten thousand sessions that do not fit
cost one look-up each, instead of an examination of every node.
``tests/model/test_shared_refusals.py`` compares a pass with one in which nothing is shared, and
``test_planner.py`` compares the incremental planner, which keeps the cache, with plans from
scratch.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.demand import Demand, dominates
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.results import HoldDetails, Refusal
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.feasible_set import Infeasibility
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState

# Skips NamedTuple.__new__, a Python function.
_new = tuple.__new__
# Number of demands kept for the dominance check, per kind of session. Keeping more would cost more
# than it saves.
_MAX_SMALLEST = 64


class CachedRefusal:
    """Why a request was refused on all unreserved nodes, and what is known about the reserved ones.

    ``details``: the hold if no reserved node is possible either. ``is_capacity``: it was refused
    for lack of capacity. ``unchecked``: ranks of nodes that were reserved, and had enough free,
    when it was refused: if one of them is no longer reserved, the refusal is void.
    ``guards_without_fit``: number of guards that protect nodes on which it does not fit at all.
    ``denied``: the state of the reservations when the guards last denied it, and the session that
    they protect, keyed by the guards for which it ends in time. ``pass_number``: the pass to which
    the last two belong.
    """

    __slots__ = (
        "denied",
        "details",
        "guards_without_fit",
        "is_capacity",
        "pass_number",
        "reason",
        "refusals",
        "unchecked",
    )

    def __init__(self, infeasibility: Infeasibility, refusals: tuple[Refusal, ...]) -> None:
        self.reason = infeasibility.reason
        self.refusals = refusals
        self.guards_without_fit = 0
        self.unchecked: frozenset[int] = frozenset()
        self.denied: dict[tuple[bool, ...], tuple[int, SessionId]] = {}
        self.is_capacity = infeasibility.reason is Reason.INSUFFICIENT_RESOURCES
        self.details = _new(HoldDetails, (self.reason, refusals, True, self.is_capacity, None, ()))
        self.pass_number = 0

    def leave_unchecked(self, ranks: Iterable[int]) -> None:
        """It was refused on all other nodes."""
        self.unchecked = frozenset(ranks)

    def note_no_fit(self, guards: int) -> None:
        """It fits on no node that one of these guards protects."""
        self.guards_without_fit = guards

    def begin_pass(self, pass_number: int) -> None:
        """Forget facts that depend on the reservations of an earlier pass."""
        self.guards_without_fit = 0
        self.pass_number = pass_number
        self.denied.clear()


class RefusalCache:
    """``quantized`` (see ``NodePool``): a smaller fraction may be refused where a larger one is
    not, so fractions must match for the dominance check.

    The incremental planner keeps one cache for all passes, forgets sessions with constraints, and
    invalidates the refusals that changed agents may have changed for the others. Entries then move
    between three states: refused (in ``_by_key``), open (absent: any node may take it), and open on
    the changed nodes only (in ``_only_changed``), because all other nodes refused it and have not
    changed.
    """

    def __init__(self, quantized: bool) -> None:
        self._quantized = quantized
        self._by_key: dict[object, CachedRefusal] = {}

        # The smallest refused demands, by kind of session. No demand in a list dominates another.
        self._smallest: dict[object, list[tuple[Demand, Infeasibility]]] = {}
        # Shapes that dominate none of the smallest demands, and how many demands had been added at
        # that time.
        self._not_dominating: dict[Shape, int] = {}
        self._added = 0
        self.pass_number = 0

        # For the incremental planner:
        self._invalidated: dict[Shape, CachedRefusal] = {}
        self._changed_nodes: list[NodeState] = []
        self._only_changed: set[Shape] = set()
        self._constrained: list[tuple[object, object]] = []  # the keys of sessions with constraints

    def find(self, item: Pending, demand: Demand) -> CachedRefusal | None:
        """The refusal of ``item``, or of a smaller request, which implies it."""
        if not self._by_key:
            return None
        if known := self._by_key.get(self._key(item)):
            return known
        if item.unconstrained and self._not_dominating.get(item.shape) == self._added:
            return None

        for smaller, infeasibility in self._smallest.get(self._dominance_key(item), ()):
            if dominates(demand, smaller) and infeasibility.applies_to(demand):
                return self._put(item, demand, infeasibility)

        if item.unconstrained:
            self._not_dominating[item.shape] = self._added

        return None

    def add(self, item: Pending, demand: Demand, infeasibility: Infeasibility) -> CachedRefusal:
        # With reserved nodes, a session's end matters as well as its size, so larger requests must
        # be examined themselves.
        if infeasibility.has_reserved:
            return self._put(item, demand, infeasibility)

        smallest = self._smallest.setdefault(self._dominance_key(item), [])
        self._added += 1

        # "Never fits" says nothing about the capacity that is free now, so it must not replace a
        # refusal that does.
        never = infeasibility.reason is Reason.INFEASIBLE
        smallest[:] = [
            (kept, why)
            for kept, why in smallest
            if (why.reason is Reason.INFEASIBLE) != never or not dominates(kept, demand)
        ]
        if len(smallest) < _MAX_SMALLEST:
            smallest.append((demand, infeasibility))

        return self._put(item, demand, infeasibility)

    def get(self, shape: Shape) -> CachedRefusal | None:
        """The refusal of unconstrained sessions of this shape."""
        return self._by_key.get(shape)

    # --- between the passes of the incremental planner, which keeps the refusals of unconstrained
    # sessions

    def forget_constrained(self) -> None:
        """End a pass: forget the refusals of sessions with constraints."""
        for key, dominance_key in self._constrained:
            self._by_key.pop(key, None)
            self._smallest.pop(dominance_key, None)
        self._constrained.clear()

    def invalidate(self, changed: list[NodeState], pool: NodePool) -> list[Shape]:
        """Begin a pass in which these nodes have changed. Returns the shapes that fit on one of
        them now.

        All other nodes refused such a shape and still do, so ``nodes_to_try`` restricts it to the
        changed ones.
        """
        self._only_changed = set()
        self._changed_nodes = changed
        self.pass_number += 1
        opened: list[Shape] = []
        for shape, refusal in self._by_key.items() if changed else ():
            request = pool.request(shape)  # type: ignore[arg-type]
            for node in changed:
                fits = node.fits(request.demand) and node.rank in request.ranks
                if fits and node.rank not in refusal.unchecked:
                    opened.append(shape)  # type: ignore[arg-type]
                    break

        for shape in opened:
            refusal = self._invalidated[shape] = self._by_key.pop(shape)
            # Unchecked nodes may also take it if they are no longer reserved; in that case, any
            # node may.
            if not refusal.unchecked:
                self._only_changed.add(shape)

        for smallest in self._smallest.values() if changed else ():
            smallest[:] = [
                row for row in smallest if not any(node.fits(row[0]) for node in changed)
            ]

        return opened

    def nodes_to_try(self, shape: Shape) -> list[NodeState] | None:
        """The only nodes on which the shape may fit; None means that it may fit on any node."""
        return self._changed_nodes if self._only_changed and shape in self._only_changed else None

    def restore(self, shape: Shape) -> CachedRefusal | None:
        """The shape was refused again: reuse its invalidated refusal, if there is one.

        Its reason still holds; its numbers may be those of an earlier pass.
        """
        old = self._invalidated.get(shape)
        if old is not None:
            self._only_changed.discard(shape)
            old.leave_unchecked(())
            old.begin_pass(self.pass_number)
            self._by_key[shape] = old

        return old

    def _put(self, item: Pending, demand: Demand, infeasibility: Infeasibility) -> CachedRefusal:
        refusal = CachedRefusal(infeasibility, infeasibility.refusals(demand))
        key = self._key(item)
        self._by_key[key] = refusal
        if key is not item.shape:
            self._constrained.append((key, self._dominance_key(item)))
        return refusal

    def _key(self, item: Pending) -> object:
        if item.avoid or item.designated:
            return item.shape, item.avoid, item.designated
        return item.shape

    def _dominance_key(self, item: Pending) -> object:
        fractions = item.shape.fractions if self._quantized else ()
        return item.shape.constraints, item.avoid, item.designated, fractions
