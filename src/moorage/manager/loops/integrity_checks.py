"""Integrity checks of live rows, in parts: how the garbage collector detects drift.

A round begins at most once a minute. Its parts take about equally long; a longer part that cannot
be divided is followed by a longer pause. More rows make a round longer, but do not make the checks
more expensive. ``moorage db check`` checks everything in one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from moorage.common.aio.clock import Clock
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.platform.integrity import Part

log = structlog.get_logger("moorage.gc")

ROUND_EVERY_S = 60.0
# How long a part may take, and the numbers of agents or sessions in it: initial, minimum, maximum.
PART_S = 0.005
FIRST = 4
LEAST = 1
MOST = 2_000
# Maximum share of time that is spent on checks.
SHARE = 0.002


class _Progress:
    """``cursor``: the end of the last part; ``count``: the number of rows in the next one."""

    def __init__(self, next_part: Callable[[Any, int], Awaitable[Part]]) -> None:
        self.next_part = next_part
        self.count = FIRST
        self.cursor: Any = None
        self.is_complete = True

    def begin(self) -> None:
        self.cursor = None
        self.is_complete = False

    def advance(self, part: Part, took_s: float) -> None:
        self.cursor = part.cursor
        self.is_complete = part.cursor is None
        self.count = min(max(round(self.count * min(2.0, PART_S / max(took_s, 1e-6))), LEAST), MOST)


class IntegrityChecks:
    def __init__(self, store: Store, metrics: ManagerMetrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._progress = [_Progress(store.integrity.agents), _Progress(store.integrity.sessions)]
        self._began_at = clock.monotonic()
        self._due_at = self._began_at
        # Violations that could not be repaired, by check, in the previous round and in this one.
        self._before: Counter[str] = Counter()
        self._found: Counter[str] = Counter()

    async def run_once(self) -> None:
        """Check the next part of the agents and of the sessions, and repair what can be
        repaired."""
        now = self._clock.monotonic()
        if now < self._due_at:
            return

        if all(progress.is_complete for progress in self._progress):
            if now - self._began_at < ROUND_EVERY_S:
                return

            self._began_at = now
            self._before = self._found
            self._found = Counter()
            for progress in self._progress:
                progress.begin()

        for progress in self._progress:
            if not progress.is_complete:
                await self._check(progress)

        if all(progress.is_complete for progress in self._progress):
            self._before = self._found

        self._metrics.set_drift(self._before | self._found)
        self._due_at = now + (self._clock.monotonic() - now) / SHARE

    async def _check(self, progress: _Progress) -> None:
        started = self._clock.monotonic()
        part = await progress.next_part(progress.cursor, progress.count)
        for drift in await self._store.integrity.repair(part):
            log.error(
                "drift",
                check=drift.check,
                what=drift.subject,
                found=drift.detail,
                repaired=drift.repaired,
            )
            if drift.repaired:
                self._metrics.drift_repaired(drift.check)
            else:
                self._found[drift.check] += 1

        progress.advance(part, self._clock.monotonic() - started)
