"""Waiting requests, held in order until a replica of their model is ready. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

_Place = tuple[int, int, "Held", int]


class Held(Protocol):
    """A request that can be held."""

    @property
    def model(self) -> str: ...


class WaitingRoom:
    """Held requests by model, ordered by priority and then by age.

    For all models together, it has room for ``max_requests`` requests with ``max_bytes`` in their
    bodies.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._by_model: dict[str, list[_Place]] = {}
        self._places: dict[Held, _Place] = {}
        self._arrivals = 0
        self._bytes = 0

    def add(self, request: Held, priority: int, size: int) -> bool:
        """Hold a request with a body of ``size`` bytes. Returns False if there is no room."""
        if len(self._places) >= self._max_requests or self._bytes + size > self._max_bytes:
            return False
        self._arrivals += 1
        self._bytes += size
        place = self._places[request] = (-priority, self._arrivals, request, size)
        insort(self._by_model.setdefault(request.model, []), place)
        return True

    def remove(self, request: Held) -> bool:
        """Remove a request. Returns False if it is not held."""
        if (place := self._places.pop(request, None)) is None:
            return False
        self._bytes -= place[3]
        queue = self._by_model[request.model]
        del queue[bisect_left(queue, place)]
        if not queue:
            del self._by_model[request.model]
        return True

    def __contains__(self, request: Held) -> bool:
        return request in self._places

    def __bool__(self) -> bool:
        return bool(self._places)

    def position(self, request: Held) -> int:
        """A held request's position in its model's queue, starting from 1."""
        return bisect_left(self._by_model[request.model], self._places[request]) + 1

    def counts(self) -> dict[str, int]:
        """Held requests by model."""
        return {model: len(queue) for model, queue in self._by_model.items()}

    def of_model(self, model: str) -> list[Held]:
        """A model's held requests in order."""
        return [request for _, _, request, _ in self._by_model.get(model, ())]

    def in_order(self) -> Iterator[Held]:
        """All held requests, in order for each model. Requests can be removed during the
        iteration."""
        for queue in list(self._by_model.values()):
            for _, _, request, _ in list(queue):
                yield request
