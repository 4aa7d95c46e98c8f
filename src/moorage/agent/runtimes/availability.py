"""Availability of a runtime whose service or site may stop answering. The agent then withdraws the
runtime."""

from __future__ import annotations

import structlog

from moorage.agent.runtimes.base import Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.runtimes.availability")
# Upgrading a service takes seconds. Only a longer outage withdraws the runtime.
UNAVAILABLE_AFTER_S = 60.0


class RuntimeAvailability:
    """The state of one runtime. It is offered while it answers and for ``UNAVAILABLE_AFTER_S``
    afterwards, but not while it refuses new kernels. ``isolates``: whether it accepts any user's
    kernels, as of its last answer. ``problem``: why it accepts no new kernels, in its own words;
    empty if it does accept them."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._answered_at: float | None = None
        self.offered = False
        self.isolates = False
        self.problem = ""

    async def check(self) -> None:
        now = self._clock.monotonic()
        name = self._runtime.name
        try:
            isolation = await self._runtime.probe()
        except RuntimeFailed as error:
            if error.is_refusal:
                self._answered_at = now
                self._withdraw(error, "a runtime accepts no new kernels for now")
            elif self._answered_at is None or now - self._answered_at >= UNAVAILABLE_AFTER_S:
                # The first message is kept, because a different message from each attempt would be
                # reported every time.
                if self._answered_at is not None or not self.problem:
                    self._withdraw(error, "a runtime does not answer; no new kernels in it")
                self._answered_at = None
        else:
            if not self.offered:
                log.info("a runtime is available", runtime=name)

            self._answered_at = now
            self.offered = True
            self.isolates = isolation.isolates
            self.problem = ""

    def _withdraw(self, error: RuntimeFailed, said: str) -> None:
        problem = f"{error.message}; {error.next_step}" if error.next_step else error.message
        if problem != self.problem:
            log.warning(said, runtime=self._runtime.name, why=problem)
        self.offered = False
        self.problem = problem
