"""Lists the jobs of one account: one call for all of them, and another call for each missing
job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from moorage.agent.runtimes.batch import JobName
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed
from moorage.agent.runtimes.heappe.wire import ACTIVE, HeappeJob
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId

_STATES = tuple(sorted(ACTIVE))
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """An observed job. ``at``: unix seconds by the agent's clock, before the server was queried."""

    job: HeappeJob
    at: float


class HeappeListing:
    """The listing. ``agent``: this agent's part of the job names; the account's other jobs are not
    ours. ``others``: the names of other agents' jobs. ``per_job``: the server updates a job only
    when that job is queried. ``refusal``: why the server refuses the list; empty if it does not."""

    def __init__(
        self,
        client: HeappeClient,
        agent: str,
        clock: Clock,
        *,
        per_job: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._agent = agent
        self._clock = clock
        self._per_job = per_job
        self._lock = asyncio.Lock()
        self._begun_at: float | None = None  # the last successful listing, monotonic

        # number of listings started; number of the last successful one
        self._begun = 0
        self._number = 0
        self.others = frozenset[str]()
        self.refusal = ""
        self._active: dict[int, Seen] = {}
        self._ended: dict[int, Seen] = {}
        self._removed: set[int] = set()

    def get(self, job_id: int) -> Seen | None:
        return self._active.get(job_id) or self._ended.get(job_id)

    def of(self, name: str) -> list[HeappeJob]:
        """The active jobs with this name."""
        return [seen.job for seen in self._active.values() if seen.job.name == name]

    def all(self) -> list[HeappeJob]:
        """This agent's active jobs."""
        return [seen.job for seen in self._active.values()]

    def remove(self, job_id: int) -> None:
        """Remove a job that has ended for good. The server may still list it as active for a while,
        from a cache."""
        self.forget(job_id)
        self._removed.add(job_id)

    def forget(self, job_id: int) -> None:
        self._active.pop(job_id, None)
        self._ended.pop(job_id, None)

    async def refresh(self, watched: Collection[int] = (), since: float | None = None) -> None:
        """List the jobs, and query those in ``watched`` that are no longer active. ``since``: a
        listing that was started later is recent enough. Raises ``HeappeFailed``."""
        begun = self._begun
        async with self._lock:
            is_newer = self._number > begun  # it was started after this call
            if is_newer or (
                since is not None and self._begun_at is not None and self._begun_at >= since
            ):
                return

            self._begun += 1
            begun_at = self._clock.monotonic()
            at = self._clock.now().timestamp()

            try:
                found = await self._client.jobs(_STATES)
            except HeappeFailed as error:
                self.refusal = error.message if error.is_refusal else ""
                raise

            self.refusal = ""
            names = [(job, JobName.parse(job.name)) for job in found]
            ours = [job for job, name in names if self._is_ours(name)]
            self.others = frozenset(
                job.name for job, name in names if name and not self._is_ours(name)
            )
            self._removed &= {job.id for job in found}
            self._active = {job.id: Seen(job, at) for job in ours if job.id not in self._removed}
            self._begun_at = begun_at
            self._number = self._begun
            missing = [job_id for job_id in watched if job_id not in self._active]
            stale = [job.id for job in ours if job.id in watched] if self._per_job() else []
            await self.look_at([job_id for job_id in (*missing, *stale) if job_id])

    async def look_at(self, job_ids: Collection[int]) -> None:
        """Query these jobs one by one. If there is no answer, a job keeps its last state, which
        becomes outdated."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def query(job_id: int) -> None:
            async with limit:
                at = self._clock.now().timestamp()
                try:
                    job = await self._client.job(job_id)
                except HeappeFailed:
                    return
            self.forget(job_id)
            (self._active if job.state in ACTIVE else self._ended)[job_id] = Seen(job, at)

        await asyncio.gather(*(query(job_id) for job_id in job_ids))

    def _is_ours(self, name: JobName | None) -> bool:
        return name is not None and name.agent == self._agent


def kernel_of(job: HeappeJob) -> KernelId:
    """A job's kernel, which is the name of its task."""
    return KernelId(job.task.name)
