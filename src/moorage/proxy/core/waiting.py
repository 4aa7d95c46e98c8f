"""Waiting requests: those that are held until a replica of their model is ready, in their order. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Protocol


class Held(Protocol):
    """A request that can be held."""

    @property
    def model(self) -> str: ...


class WaitingRoom:
    """Held requests by model: those of a higher priority first, then the older ones."""

    def __init__(self) -> None:
        self._by_model: dict[str, list[tuple[int, int, Held]]] = {}
        self._places: dict[Held, tuple[int, int, Held]] = {}
        self._arrivals = 0

    def add(self, request: Held, priority: int) -> None:
        self._arrivals += 1
        place = self._places[request] = (-priority, self._arrivals, request)
        insort(self._by_model.setdefault(request.model, []), place)

    def remove(self, request: Held) -> None:
        """Does nothing if the request is not held."""
        if (place := self._places.pop(request, None)) is not None:
            queue = self._by_model[request.model]
            queue.remove(place)
            if not queue:
                del self._by_model[request.model]

    def counts(self) -> dict[str, int]:
        """Held requests by model."""
        return {model: len(queue) for model, queue in self._by_model.items()}

    def in_order(self) -> Iterator[Held]:
        """All held requests, each model's in its order. They may be removed meanwhile."""
        for queue in list(self._by_model.values()):
            for _, _, request in list(queue):
                yield request
