"""Health of ready kernels: probes each engine periodically and reads its metrics.

A probe is a real generation, as in the readiness check, if anything suggests that the engine may
not work, and every ``GENERATE_S``. As long as its counters show that it is idle or makes progress,
a probe requests the engine's own health route, because each generation writes some ten lines into
the log of the model. After ``FAILURES`` failed probes in a row, the kernel is unhealthy until a
probe succeeds. A probe that gets no answer in time does not count as failed if the engine's own
counters show progress, because earlier requests in the queue may take a long time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from moorage.agent.engines.metrics import EngineMetrics
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.ids import KernelId
from moorage.common.model.resource_usage import EngineUse

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import ReadinessCheck

FAILURES = 3
METRICS_S = 2.0
GENERATE_S = 300.0


class KernelHealth:
    """Health of one kernel: counts its failed probes. Pure except for ``check``."""

    def __init__(self, check: ReadinessCheck) -> None:
        self._check = check
        self._failures = 0
        self._progress = 0.0
        self.interval_s = check.interval_s
        self.probed_at = float("-inf")
        self.read_at = self.probed_at
        self.metrics: EngineMetrics | None = None
        self.has_metrics = True  # until the engine answers that it has no metrics
        self.max_model_len: int | None = None
        self._asked = 0  # how many times the context length was requested
        self._generated_at = float("-inf")

    @property
    def problem(self) -> str:
        """The reason why the kernel is unhealthy; empty if it is healthy."""
        return (
            f"{self._failures} health checks failed: {self._check.last_result}"
            if self._is_bad
            else ""
        )

    @property
    def _is_bad(self) -> bool:
        return self._failures >= FAILURES

    def forget(self) -> None:
        """Discard the results of earlier probes, because the kernel currently cannot be checked."""
        self.probed_at = float("-inf")
        self._generated_at = float("-inf")
        self._failures = 0

    def became_ready(self, now: float) -> None:
        """Note that the readiness check has just generated."""
        self.probed_at = now
        self._generated_at = now

    async def probe(self) -> None:
        outcome = await self._outcome()
        progress = self.metrics.progress if self.metrics is not None else 0.0
        works = outcome is None and progress > self._progress
        self._failures = 0 if outcome or works else self._failures + 1
        self._progress = progress

    async def _outcome(self) -> bool | None:
        metrics = self.metrics
        is_due = self.probed_at - self._generated_at >= GENERATE_S
        if metrics is None or self._failures or is_due:
            is_doubtful = True
        else:
            has_requests = metrics.running + metrics.waiting > 0
            is_doubtful = has_requests and metrics.progress <= self._progress

        if self._check.has_health_route and not is_doubtful:
            return await self._check.probe_quietly()

        self._generated_at = self.probed_at
        return await self._check.probe_once()

    async def read_metrics(self) -> None:
        found = await self._check.read_metrics()
        self.has_metrics = found is not None
        self.metrics = found
        if found is not None and self.max_model_len is None and self._asked < FAILURES:
            self._asked += 1
            self.max_model_len = await self._check.read_max_model_len()


class HealthMonitor:
    """A monitor of engines. ``serving``: the ready kernels that answer requests, each with its
    check. ``on_change`` is called with a kernel and the reason why it is unhealthy, which is empty
    once it is healthy again. ``period_s``: the time between two probes. ``is_unreachable``: whether
    a kernel is not checked because no request reaches it."""

    def __init__(
        self,
        serving: Callable[[], Mapping[KernelId, Callable[[], ReadinessCheck | None]]],
        on_change: Callable[[KernelId, str], None],
        clock: Clock,
        period_s: float,
        *,
        is_unreachable: Callable[[KernelId], bool] = lambda _: False,
    ) -> None:
        self._serving = serving
        self._on_change = on_change
        self._clock = clock
        self._period_s = period_s
        self._is_unreachable = is_unreachable
        self._kernels: dict[KernelId, KernelHealth | None] = {}
        self._running: dict[tuple[KernelId, str], asyncio.Task[None]] = {}

    async def tick(self) -> None:
        """Start the checks that are due. A slow check does not delay the others."""
        serving = self._serving()
        now = self._clock.monotonic()
        for kernel_id in self._kernels.keys() - serving.keys():
            del self._kernels[kernel_id]

        for kernel_id, make in serving.items():
            if kernel_id not in self._kernels:
                check = make()
                self._kernels[kernel_id] = KernelHealth(check) if check is not None else None
                if (made := self._kernels[kernel_id]) is not None:
                    made.became_ready(now)

            health = self._kernels[kernel_id]
            if health is None:
                continue

            if self._is_unreachable(kernel_id):
                was_bad = bool(health.problem)
                health.forget()
                if was_bad:
                    self._on_change(kernel_id, "")

                continue

            if health.has_metrics and now - health.read_at >= health.interval_s:
                health.read_at = now
                self._begin(kernel_id, "metrics", health.read_metrics)

            period_s = max(self._period_s, health.interval_s)
            if now - health.probed_at >= period_s and self._begin(kernel_id, "probe", health.probe):
                health.probed_at = now  # before the task begins

    def loads(self) -> list[EngineUse]:
        """The load of each engine that reports it."""
        return [
            EngineUse(
                kernel_id,
                health.metrics.running,
                waiting=health.metrics.waiting,
                kv_cache=None
                if health.metrics.kv_cache is None
                else round(1000 * health.metrics.kv_cache),
                max_model_len=health.max_model_len,
            )
            for kernel_id, health in self._kernels.items()
            if health is not None and health.metrics is not None
        ]

    async def close(self) -> None:
        await cancel_and_wait(*self._running.values())

    def _begin(self, kernel_id: KernelId, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Start a check. Returns False if the previous one is still running."""
        key = kernel_id, what
        if key in self._running:
            return False
        task = self._running[key] = spawn(f"health.{what}.{kernel_id}", self._run(kernel_id, work))
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return True

    async def _run(self, kernel_id: KernelId, work: Callable[[], Awaitable[None]]) -> None:
        health = self._kernels[kernel_id]
        assert health is not None
        before = health.problem
        await work()
        if bool(health.problem) != bool(before) and self._kernels.get(kernel_id) is health:
            self._on_change(kernel_id, health.problem)
