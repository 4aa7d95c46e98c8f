"""Probes one kernel with its engine's readiness check until the kernel is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from moorage.common.aio.clock import Clock
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.model.ids import KernelId

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import ReadinessCheck


class Probing:
    """``wakeup`` is set when the kernel is ready."""

    def __init__(
        self, key: KernelId, clock: Clock, wakeup: asyncio.Event, on_activity: Callable[[str], None]
    ) -> None:
        self._key = key
        self._clock = clock
        self._wakeup = wakeup
        self._on_activity = on_activity
        self._check: ReadinessCheck | None = None
        self._succeeded = False
        self._task: SupervisedTask | None = None

    def use(self, check: ReadinessCheck | None) -> None:
        """Set the check. None means that the kernel is ready as soon as it runs."""
        self._check = check

    @property
    def is_needed(self) -> bool:
        return self._check is not None

    @property
    def has_passed(self) -> bool:
        return self._check is None or self._succeeded

    @property
    def last_result(self) -> str:
        return self._check.last_result if self._check is not None else ""

    def begin(self, period_s: float) -> None:
        """Start probing, unless it has already started."""
        if self._check is None or self._task is not None:
            return

        check = self._check

        async def probe() -> None:
            await check.wait(period_s, self._clock, self._on_activity)
            self._succeeded = True
            self._wakeup.set()

        self._task = SupervisedTask("kernel.probe", probe, key=self._key, finite=True)

    async def stop(self) -> None:
        """Stop and discard the result. A later ``begin`` starts over."""
        task = self._task
        self._task = None
        self._succeeded = False
        if task is not None:
            await task.close()
