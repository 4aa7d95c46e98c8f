"""Lists the agent's jobs: one ``squeue`` for all of them, and callbacks for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.batch import JobName
from moorage.agent.runtimes.slurm.commands import Slurm
from moorage.agent.runtimes.slurm.interpretation import SlurmJob
from moorage.common.aio.clock import Clock


class SlurmListing:
    """The listing. ``agent``: this agent's part of job names. ``on_change`` is called with the name
    of each job that differs from the last listing. ``failure``: why the site did not answer the
    last query; empty if it did."""

    def __init__(
        self, slurm: Slurm, agent: str, clock: Clock, on_change: Callable[[str], None]
    ) -> None:
        self._slurm = slurm
        self._agent = agent
        self._clock = clock
        self._on_change = on_change
        self._jobs: dict[str, tuple[SlurmJob, ...]] = {}
        self._lock = asyncio.Lock()
        self._began_at = float("-inf")
        self.failure = "the site has not been queried yet"

    def jobs(self, name: str) -> tuple[SlurmJob, ...]:
        return self._jobs.get(name, ())

    def all(self) -> Mapping[str, tuple[SlurmJob, ...]]:
        return self._jobs

    async def refresh(self, since: float | None = None) -> None:
        """Query the site. Callers share one answer. ``since``: an answer to a query from this
        monotonic time or later suffices; None means that only a new query does. Raises
        ``RuntimeFailed``."""
        since = self._clock.monotonic() if since is None else since
        async with self._lock:
            if self._began_at >= since and not self.failure:
                return

            began_at = self._clock.monotonic()
            try:
                found = await self._slurm.jobs()
            except RuntimeFailed as error:
                changed = not self.failure
                self.failure = error.message or "the site does not answer"
                if changed:
                    self._notify(self._jobs)

                raise

            self._began_at = began_at
            had_failed = self.failure
            self.failure = ""
            self._take(found, everything=bool(had_failed))

    def _take(self, found: list[SlurmJob], *, everything: bool) -> None:
        jobs: dict[str, tuple[SlurmJob, ...]] = {}
        for job in found:
            name = JobName.parse(job.name)
            if name is not None and name.agent == self._agent:
                jobs[job.name] = (*jobs.get(job.name, ()), job)

        before = self._jobs
        self._jobs = jobs
        changed = {
            name for name in before.keys() | jobs.keys() if before.get(name) != jobs.get(name)
        }
        self._notify(before.keys() | jobs.keys() if everything else changed)

    def _notify(self, names: Mapping[str, object] | set[str]) -> None:
        for name in list(names):
            self._on_change(name)
