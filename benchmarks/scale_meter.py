"""Meter of the scale benchmark: CPU time of steps, in this process and in Postgres."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from measuring import family, median

_WATCH_S = 0.004


class Steps(Protocol):
    """What measures steps."""

    def step(self, name: str, *, of_s: float | None = None) -> AbstractContextManager[None]: ...


class Subject(Protocol):
    """One case at one size. Entering it fills the database."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def round(self, meter: Meter) -> None:
        """One round: each of its steps within ``meter.step(name)``, everything else outside."""
        ...


@dataclass(frozen=True)
class Case:
    """``subject``: from a DSN and a size. ``short``: the sizes of the short form. ``has_leader``:
    also measure whole managers on the largest database."""

    subject: Callable[[str, int], Subject]
    sizes: tuple[int, ...]
    short: tuple[int, int]
    unit: Callable[[str], str] = lambda step: "each"
    has_leader: bool = False


class Meter:
    """``postgres``: process id of the server. ``blocked_ms``: the longest time for which a step
    kept the event loop, in CPU time."""

    def __init__(self, postgres: int) -> None:
        self._postgres = postgres
        self._rounds: defaultdict[str, list[float]] = defaultdict(list)
        self._current: defaultdict[str, list[float]] = defaultdict(list)
        self._per: dict[str, float] = {}
        self._step = ""
        self._overhead_s = 0.0
        self._statistics: dict[int, int] = {}
        self.blocked_ms: dict[str, float] = {}

    def _find_backends(self) -> None:
        """Postgres' processes, each with one thread. Those that start later are found in the next
        round."""
        found = set(family(self._postgres))
        for pid in self._statistics.keys() - found:
            os.close(self._statistics.pop(pid))
        for pid in found - self._statistics.keys():
            with suppress(FileNotFoundError):  # a backend that has just ended
                self._statistics[pid] = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)

    def _postgres_s(self) -> float:
        began = time.thread_time()
        total = 0
        for descriptor in self._statistics.values():
            with suppress(ProcessLookupError):
                total += int(os.pread(descriptor, 64, 0).split()[0])
        self._overhead_s += time.thread_time() - began
        return total / 1e9

    @contextmanager
    def step(self, name: str, *, of_s: float | None = None) -> Iterator[None]:
        """Add the CPU time spent inside the context to step ``name``. With ``of_s``, the result is
        the round's sum per that many seconds; otherwise it is the median per call."""
        if of_s is not None:
            self._per[name] = of_s

        postgres = self._postgres_s()
        self._step = name
        own = time.process_time()
        try:
            yield
        finally:
            own = time.process_time() - own
            time.sleep(0.0005)  # until the backends are idle, and their time has been counted
            self._step = ""
            self._current[name].append(own + self._postgres_s() - postgres)

    @asynccontextmanager
    async def round(self, *, kept: bool) -> AsyncIterator[None]:
        self._find_backends()
        watch = asyncio.create_task(self._watch(kept))
        try:
            yield
        finally:
            watch.cancel()

        if kept:
            for name, values in self._current.items():
                per = self._per.get(name)
                self._rounds[name].append(median(values) if per is None else sum(values) / per)

        self._current.clear()

    async def _watch(self, kept: bool) -> None:
        while True:
            step = self._step
            before = time.thread_time() - self._overhead_s
            await asyncio.sleep(_WATCH_S)
            blocked_ms = 1000 * (time.thread_time() - self._overhead_s - before)
            if kept and step:
                self.blocked_ms[step] = max(self.blocked_ms.get(step, 0.0), blocked_ms)

    def medians_ms(self) -> dict[str, float]:
        return {name: 1000 * median(values) for name, values in self._rounds.items()}
