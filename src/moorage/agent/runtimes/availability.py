"""Availability of a runtime whose service or site may stop answering: whether the agent offers it."""

from __future__ import annotations

import structlog

from moorage.agent.runtimes.base import Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.runtimes.availability")
# An upgrade of a service takes seconds; only a longer outage withdraws the runtime.
UNAVAILABLE_AFTER_S = 60.0


class RuntimeAvailability:
    """Tracks whether a runtime is offered: while it answers and for ``UNAVAILABLE_AFTER_S`` after that, but
    not while it refuses new kernels. ``isolates``: whether it takes kernels of any user, as of its last
    answer."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._answered_at: float | None = None
        self.offered, self.isolates, self._last_warning = False, False, ""

    async def check(self) -> None:
        now, name = self._clock.monotonic(), self._runtime.name
        try:
            isolation = await self._runtime.probe()
        except RuntimeFailed as error:
            if not error.is_refusal:
                if self._answered_at is None or now - self._answered_at < UNAVAILABLE_AFTER_S:
                    return
                self._answered_at, self.offered = None, False
                log.warning(
                    "a runtime does not answer; no new kernels in it", runtime=name, why=error.message
                )
                return
            if self.offered or error.message != self._last_warning:
                log.warning("a runtime takes no new kernels for now", runtime=name, why=error.message)
            self._answered_at, self.offered, self._last_warning = now, False, error.message
        else:
            if not self.offered:
                log.info("a runtime is available", runtime=name)
            self._answered_at, self.offered, self.isolates = now, True, isolation.isolates
