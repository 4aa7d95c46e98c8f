"""Replicas that fail for every caller, judged by the proxy's requests. Pure.

A replica fails for everybody once requests with ``KEYS`` different keys have failed there within
``WINDOW_S`` without an answered request in between. So a single tenant whose requests crash an
engine cannot cause this. Requests refused with 4xx do not count as failed. If no keys are required,
each request counts as a separate key.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from moorage.common.model.ids import KernelId
from moorage.proxy.core.retry import Failure

KEYS = 2
WINDOW_S = 30.0
# How long a replica counts as answering after an answer.
ANSWERED_S = 10.0
FAILED: Final = frozenset({500, 502, 503, 504})
"""Statuses that are not answers to the request, from an engine or a server in front of it."""
COUNTED: Final = frozenset(
    {Failure.CONNECT, Failure.DISCONNECT, Failure.IDLE_TIMEOUT, Failure.ENGINE_DEAD}
)


@dataclass(slots=True)
class _Failing:
    """A replica's failures. ``by_key``: when each key's last request failed."""

    since: float
    by_key: dict[str, float] = field(default_factory=dict)
    fails_everybody: bool = False


class Answering:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failing: dict[KernelId, _Failing] = {}
        self._answered_at: dict[KernelId, float] = {}
        self._unnamed = 0

    def answered(self, kernel_id: KernelId, now: float) -> bool:
        """Record an answered request. Returns whether requests had failed there."""
        self._answered_at[kernel_id] = now
        return bool(self._failing) and self._failing.pop(kernel_id, None) is not None

    def failed(self, kernel_id: KernelId, key: str, now: float) -> bool:
        """Record a failed request with this key, empty if it had none. Returns whether the replica
        fails for everybody."""
        found = self._failing.setdefault(kernel_id, _Failing(now))
        if found.fails_everybody:
            return True
        if not key:
            self._unnamed += 1
            key = f"{self._unnamed}"

        recent = {name: at for name, at in found.by_key.items() if now - at <= WINDOW_S}
        found.by_key = recent | {key: now}
        found.since = min(found.by_key.values())
        found.fails_everybody = len(found.by_key) >= KEYS
        return found.fails_everybody

    def failing_since(self, kernel_id: KernelId) -> float | None:
        """The time since which a replica has failed for everybody; None if it does not."""
        found = self._failing.get(kernel_id)
        return found.since if found is not None and found.fails_everybody else None

    def has_answered(self, kernel_id: KernelId, now: float) -> bool:
        """Whether the replica has answered recently."""
        return now - self._answered_at.get(kernel_id, float("-inf")) <= ANSWERED_S

    def keep_only(self, kernel_ids: Container[KernelId]) -> None:
        """Forget replicas that are no longer in the table."""
        for kernel_id in {*self._failing, *self._answered_at}:
            if kernel_id not in kernel_ids:
                self._failing.pop(kernel_id, None)
                self._answered_at.pop(kernel_id, None)
