"""Benchmark runner: sends prompts according to the load and reports progress.

With a request rate, requests are due at times that do not depend on the answers, and each is
measured from the time it was due. If a request has to wait because the server or the generator is
slow, its latency includes the wait. Otherwise, a stalling server would appear to receive fewer
requests (coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from random import Random

import aiohttp

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.sdk.benchmark.requests import BenchmarkTarget, Measured, measure
from moorage.sdk.benchmark.workload import Prompt, gaps


@dataclass(frozen=True, slots=True)
class Load:
    """``request_rate``: requests per second; None means as many as ``max_concurrency`` allows.
    ``requests`` and ``duration_s``: sending stops at whichever limit is reached first."""

    request_rate: float | None = None
    max_concurrency: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    burstiness: float = 1.0


@dataclass(slots=True)
class Progress:
    """The progress of a benchmark."""

    elapsed_s: float = 0.0
    sent: int = 0
    completed: int = 0
    failed: int = 0
    tokens_out: int = 0
    peak: int = 0  # concurrent requests

    @property
    def running(self) -> int:
        return self.sent - self.completed - self.failed


class _Run:
    def __init__(
        self,
        http: aiohttp.ClientSession,
        target: BenchmarkTarget,
        clock: Clock,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._http = http
        self._target = target
        self._clock = clock
        self._on_progress = on_progress
        self.progress = Progress()
        self.measured = list[Measured]()
        self.began_at = clock.monotonic()

    async def send(
        self, prompt: Prompt, due_at: float, room: asyncio.Semaphore | None = None
    ) -> None:
        progress = self.progress
        async with room or nullcontext():
            progress.sent += 1
            progress.peak = max(progress.peak, progress.running)
            made = await measure(
                self._http, self._target, prompt=prompt, due_at=due_at, clock=self._clock
            )

        self.measured.append(made)
        progress.completed += not made.error
        progress.failed += bool(made.error)
        progress.tokens_out += made.tokens_out
        progress.elapsed_s = self._clock.monotonic() - self.began_at
        self._on_progress(progress)

    async def at_rate(self, prompts: Iterator[Prompt], times: Iterator[float], load: Load) -> None:
        """``times``: when the requests are due, in seconds from the start."""
        room = asyncio.Semaphore(load.max_concurrency) if load.max_concurrency else None
        tasks = set[asyncio.Task[None]]()
        try:
            for prompt, after_s in zip(prompts, times, strict=False):
                if load.duration_s is not None and after_s >= load.duration_s:
                    break

                due_at = self.began_at + after_s
                if (wait_s := due_at - self._clock.monotonic()) > 0:
                    await asyncio.sleep(wait_s)

                task = spawn("bench.request", self.send(prompt, due_at, room))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)

    async def concurrently(self, prompts: Iterator[Prompt], load: Load) -> None:
        async def send_in_turn() -> None:
            for prompt in prompts:
                now = self._clock.monotonic()
                if load.duration_s is not None and now - self.began_at >= load.duration_s:
                    return
                await self.send(prompt, now)

        tasks = [spawn("bench.client", send_in_turn()) for _ in range(load.max_concurrency or 1)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)


async def run(
    target: BenchmarkTarget,
    prompts: Iterator[Prompt],
    load: Load,
    *,
    clock: Clock,
    generator: Random,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[list[Measured], Progress]:
    """Send ``prompts`` until they run out or ``load`` ends. ``on_progress`` is called after each
    answer."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(target.session())
        benchmark = _Run(http, target, clock, on_progress)
        chosen = islice(prompts, load.requests)
        if load.request_rate is not None:
            await benchmark.at_rate(
                chosen, _times(generator, load.request_rate, load.burstiness), load
            )
        else:
            await benchmark.concurrently(chosen, load)

        benchmark.progress.elapsed_s = clock.monotonic() - benchmark.began_at
        return benchmark.measured, benchmark.progress


def _times(generator: Random, rate: float, burstiness: float) -> Iterator[float]:
    at = 0.0
    for gap in gaps(generator, rate, burstiness):
        yield at
        at += gap
