"""Hopeless requests: requests for which a pass has found no victims, so that it need not search
again."""

from __future__ import annotations

from moorage.manager.scheduling.core.demand import Demand, dominates
from moorage.manager.scheduling.core.model import Pending

# How many demands are kept to refuse larger ones.
_MAX_SMALLEST = 64


class HopelessRequests:
    """A request is hopeless if an equal one of at least its priority is, or a smaller single-kernel
    one.

    This holds as long as capacity only shrinks. ``quantized``: see ``NodePool``.
    """

    def __init__(self, quantized: bool) -> None:
        self._quantized = quantized
        # Keyed by what a search depends on: the highest priority, with the smallest demands.
        self._priorities: dict[object, int] = {}
        self._smallest: dict[object, list[tuple[int, Demand]]] = {}

    def __contains__(self, item: Pending) -> bool:
        if self._priorities.get((item.shape, item.designated, item.avoid), -1) >= item.priority:
            return True
        total = item.shape.total
        return item.shape.single_kernel and any(
            item.priority <= priority and dominates(total, smaller)
            for priority, smaller in self._smallest.get(self._kind(item), ())
        )

    def add(self, item: Pending) -> None:
        self._priorities[item.shape, item.designated, item.avoid] = item.priority
        if item.shape.single_kernel:
            known = self._smallest.setdefault(self._kind(item), [])
            if len(known) < _MAX_SMALLEST:
                known.append((item.priority, item.shape.total))

    def clear(self) -> None:
        self._priorities.clear()
        self._smallest.clear()

    def _kind(self, item: Pending) -> object:
        fractions = item.shape.fractions if self._quantized else ()
        return item.shape.constraints, item.designated, item.avoid, fractions
