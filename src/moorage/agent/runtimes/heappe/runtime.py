"""HEAppE runtime: each kernel is one job with one task, created from a command template that the
site has registered.

HEAppE is queried on a schedule, with one call for all jobs. The known facts are interpreted without
further queries. Silence means UNKNOWN. A job is recovered by its name, which identifies its agent,
and by its task, whose name is the kernel id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from moorage.agent.runtimes.base import (
    Capabilities,
    Counters,
    CreateFailed,
    Handle,
    Isolation,
    Launch,
    OnProgress,
    RuntimeFailed,
    RuntimeObservation,
    ignore_progress,
)
from moorage.agent.runtimes.batch import JobName, agent_part, kernel_part
from moorage.agent.runtimes.batch.nodes import NodeUsage
from moorage.agent.runtimes.execution import Command, Copy, ExecFailed, Execution
from moorage.agent.runtimes.heappe.book import JobBook
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed
from moorage.agent.runtimes.heappe.files import SiteDownload, SiteUpload, send
from moorage.agent.runtimes.heappe.records import HeappeRecord, JobRecords
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.submission import Submitter
from moorage.agent.runtimes.heappe.tracked import JobLogs, TrackedJob
from moorage.agent.runtimes.heappe.tunnel import UNREACHABLE_TIMEOUT_S
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.logs import LogStore, data_of
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import DoubtfulJob, SiteNodes
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.heappe")
NAME = "heappe"
# Jobs outlive a silent agent, up to their walltime, for which sites allow days.
_SILENCE_GRACE_S = 7 * 86_400.0
_DESTROY_S = 100.0
_LOG_PULL_S = 2.0
_CREATED_ELSEWHERE_S = 130.0
_LONGEST_POLL_S = 240.0
_ENDED = (ObservedState.EXITED, ObservedState.GONE)


@dataclass(frozen=True, slots=True)
class HeappeRules:
    """An agent's rules. ``defaults``: where jobs run by default. ``heartbeat_s``: a serving job
    exits after this long without a request; 0 means never. ``poll_s``: the time between two lists
    of jobs; ``hurried_poll_s``: the shorter time for a while after a request to the site.
    ``shared_account``: other agents may have jobs under the account. ``unreachable_timeout_s``: how
    long a job with an unreachable engine is kept, and how long a job waits to be submitted."""

    max_jobs: int
    defaults: SiteChoice
    heartbeat_s: float = 1800.0
    poll_s: float = 40.0
    hurried_poll_s: float = 5.0
    shared_account: bool = True
    unreachable_timeout_s: float = UNREACHABLE_TIMEOUT_S


class HeappeRuntime:
    """The runtime. ``identity``: the identity of the agent's state directory. ``host``,
    ``allocate``, ``release``: where relays listen. It must be closed."""

    name = NAME
    silence_grace_s = _SILENCE_GRACE_S

    def __init__(
        self,
        client: HeappeClient,
        records: JobRecords,
        logs: LogStore,
        rules: HeappeRules,
        *,
        clock: Clock,
        identity: str,
        host: str,
        allocate: Callable[[], int],
        release: Callable[[int], None] = lambda port: None,
        per_job: bool = False,
    ) -> None:
        self._client = client
        self._records = records
        self._clock = clock
        self._rules = rules
        self._agent = agent_part(identity)
        self._store = logs
        self._logs = JobLogs(client, logs)
        self.book = JobBook(
            client,
            records,
            logs=self._logs,
            clock=clock,
            agent=self._agent,
            host=host,
            allocate=allocate,
            release=release,
            per_job=per_job,
            unreachable_timeout_s=rules.unreachable_timeout_s,
        )
        self._submitter = Submitter(client, self.book.listing, clock, rules.heartbeat_s)
        self._nodes = NodeUsage(self._ask_for_nodes, clock)
        self._poll: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()
        self._hurry_until = float("-inf")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            own_address=True,
            max_jobs=self._rules.max_jobs,
            exec=False,
            workspaces=False,
            clusters=False,
            service_ports=False,
            usage=False,
            files=True,
            directories_in=False,
            check_interval_s=3 * self.book.probe_s,
            outage_s=self._rules.unreachable_timeout_s,
        )

    async def close(self) -> None:
        await cancel_and_wait(self._poll)
        await self.book.close()
        await self._client.close()

    def doubtful_jobs(self) -> tuple[DoubtfulJob, ...]:
        return self.book.doubtful()

    def site_nodes(self) -> tuple[SiteNodes, ...]:
        return self._nodes.current()

    async def probe(self) -> Isolation:
        listing = self.book.listing
        await listing.refresh(since=self._clock.monotonic() - self._rules.poll_s)
        if listing.others and not self._rules.shared_account:
            raise RuntimeFailed(
                f"other agents have jobs under this HEAppE account, such as {min(listing.others)}",
                next_step="use a separate account, or set agent.heappe_shared_account",
            )
        await self._nodes.refresh()
        return Isolation()

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        return ()

    async def create(self, launch: Launch) -> Handle:
        kernel_id = launch.kernel_id
        handle = self._handle(kernel_id)
        record = HeappeRecord(kernel_id, str(handle.state["name"]), serves=launch.serves)
        try:
            if not await asyncio.to_thread(self._records.reserve, record):
                return await self._created_elsewhere(handle)
        except OSError as error:
            raise CreateFailed(
                f"the agent cannot write the record of the job: {error}", clean=True
            ) from None

        async def save(new: HeappeRecord) -> None:
            await asyncio.to_thread(self._records.save, new)

        try:
            record = await self._submitter.submit(record, launch, self._wanted(launch), save)
            await save(record)
        except CreateFailed:
            await asyncio.to_thread(self._records.remove, kernel_id)
            raise
        except OSError as error:
            raise CreateFailed(f"the agent cannot write the record of the job: {error}") from None

        self.book.track(record)
        self._hurry()
        return handle

    async def observe(self, handle: Handle) -> RuntimeObservation:
        kernel_id, name = _ids(handle)
        job = await self.book.job(kernel_id)
        if job is None:
            return await self._observe_unknown(name)

        job.changed.clear()
        if job.seen is None or job.seen.job.id != job.record.job_id:
            await self.book.sync(only=job)

        return self.book.observe(job)

    async def wait(self, handle: Handle, last_state: ObservedState) -> None:
        kernel_id, _ = _ids(handle)
        job = await self.book.job(kernel_id)
        if job is None or last_state in _ENDED:
            return
        self._ensure_polling()
        await job.changed.wait()

    async def stop(self, handle: Handle, grace_s: float) -> None:
        """Stop a job. The site sends the signals, with its own grace period."""
        kernel_id, _ = _ids(handle)
        job = await self.book.job(kernel_id)
        if job is not None:
            await self.book.end(job)
            self._hurry()

    async def destroy(self, handle: Handle) -> None:
        kernel_id, name = _ids(handle)
        job = await self.book.job(kernel_id)
        if job is None:
            job = await self._adopt(kernel_id, name)
            if job is None:
                return

        until = self._clock.monotonic() + _DESTROY_S
        await self._logs.pull_quietly(job)
        while not await self.book.remove(job):
            if self._clock.monotonic() >= until:
                await self.book.note_unended(job)
                raise RuntimeFailed(
                    f"the site has not ended job {job.record.job_id} ({name}); it may still be "
                    "billed"
                )

            await asyncio.sleep(min(1.0, self._rules.hurried_poll_s))

    async def find(self) -> dict[KernelId, Handle]:
        await self.book.sync()
        try:
            records = await asyncio.to_thread(self._records.load)
        except OSError as error:
            raise RuntimeFailed(f"cannot read the records of jobs: {error}") from None

        found = {
            kernel_id
            for kernel_id, record in records.items()
            if record.name.startswith(self._prefix)
        }
        found |= await self.book.sweep(records)
        return {kernel_id: self._handle(kernel_id) for kernel_id in found}

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        return {}

    def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        return data_of(self.log_range(handle, LogRange(tail_lines, follow)))

    async def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        kernel_id, _ = _ids(handle)
        job = await self.book.job(kernel_id)
        ended = job is None
        if job is not None:
            await self._logs.pull_quietly(job)

        pulling = (
            spawn(f"heappe.log.{kernel_id}", self._keep_pulling(job))
            if job and wanted.follow
            else None
        )

        def is_running() -> bool:
            return not ended and pulling is not None and not pulling.done()

        try:
            async with aclosing(self._store.read_range(kernel_id, wanted, is_running)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            await cancel_and_wait(pulling)

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        kernel_id, _ = _ids(handle)
        job = await self.book.job(kernel_id)
        if job is not None:
            # While an engine loads, its log is read every second for its progress.
            await self._logs.pull_quietly(job, older_than_s=2 * self._rules.hurried_poll_s)
            if self.book.interpret(job).observation.state in _ENDED:
                try:
                    await self._logs.pull_errors(job)
                except HeappeFailed as error:
                    log.info(
                        "the errors of a job were not read", job=job.record.name, why=error.message
                    )

        return await asyncio.to_thread(self._store.tail, kernel_id, max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        raise ExecFailed(
            "runtime heappe cannot run commands inside jobs: HEAppE has no call for it"
        )

    async def copy(self, handle: Handle, copy: Copy) -> Execution:
        job = await self.book.job(_ids(handle)[0])
        if job is None:
            raise ExecFailed("the agent has no record of the job")
        if copy.into:
            return SiteUpload(self._client, job.record, copy)
        return SiteDownload(send(self._client, job.record, copy.path))

    # Parts.

    @property
    def _prefix(self) -> str:
        return f"mg-{self._agent}-"

    def _handle(self, kernel_id: KernelId) -> Handle:
        name = JobName(self._agent, kernel_part(kernel_id))
        return Handle(NAME, {"kernel_id": kernel_id, "name": str(name)})

    async def _ask_for_nodes(self) -> tuple[SiteNodes, ...]:
        try:
            place = await self._submitter.place(self._rules.defaults)
        except CreateFailed:
            return ()  # resource groups name the node types
        used, total = await self._client.used_nodes(place.node_type, place.project.id)
        return (SiteNodes(place.node_type.name, used, total),)

    def _wanted(self, launch: Launch) -> SiteChoice:
        given = self._rules.defaults
        job = launch.hpc
        if job is None:
            return given

        if job.options:
            raise CreateFailed(
                f"HEAppE accepts no options for a job, but the resource group has "
                f"{', '.join(job.options)}",
                clean=True,
                next_step="unset them: `moorage groups set GROUP hpc.options=none`",
            )

        return SiteChoice(
            job.project or given.project,
            job.cluster or given.cluster,
            node_type=job.node_type or given.node_type,
            template=job.template or given.template,
            walltime_s=job.walltime_s or given.walltime_s,
        )

    async def _created_elsewhere(self, handle: Handle) -> Handle:
        """Handle a job that another call creates or has created."""
        kernel_id, name = _ids(handle)
        until = self._clock.monotonic() + _CREATED_ELSEWHERE_S
        while self._clock.monotonic() < until:
            record = await asyncio.to_thread(self._records.read, kernel_id)
            if record is not None and record.job_id and (record.submitted or record.submitting_at):
                return handle
            if self.book.is_tracked(kernel_id):
                return handle

            await asyncio.sleep(0.1)

        raise CreateFailed(
            f"job {name} was started by an earlier run of the agent, but never created"
        )

    async def _observe_unknown(self, name: str) -> RuntimeObservation:
        """Observe a kernel without a record. It is GONE only if the site reports so."""
        try:
            await self.book.listing.refresh()
        except HeappeFailed as error:
            return RuntimeObservation(ObservedState.UNKNOWN, detail=error.message)

        if self.book.listing.of(name):
            return RuntimeObservation(
                ObservedState.UNKNOWN, detail="the site has it, but the agent has no record"
            )

        return RuntimeObservation(ObservedState.GONE)

    async def _adopt(self, kernel_id: KernelId, name: str) -> TrackedJob | None:
        """Adopt the job of a kernel whose record was lost."""
        await self.book.listing.refresh()
        found = self.book.listing.of(name)
        if not found:
            return None
        record = HeappeRecord(kernel_id, name, found[0].id, found[0].task.id, submitted=True)
        await asyncio.to_thread(self._records.reserve, record)
        return self.book.track(record)

    async def _keep_pulling(self, job: TrackedJob) -> None:
        """Pull the log until the job has ended and its last output was read."""
        while True:
            ended = self.book.interpret(job).observation.state in _ENDED
            await self._logs.pull_quietly(job)
            if ended or not self.book.is_tracked(job.record.kernel_id):
                return
            await asyncio.sleep(min(_LOG_PULL_S, self._rules.hurried_poll_s))

    def _hurry(self) -> None:
        self._hurry_until = self._clock.monotonic() + 4 * self._rules.hurried_poll_s
        self._hurried.set()
        self._ensure_polling()

    def _ensure_polling(self) -> None:
        if self._poll is None or self._poll.done():
            self._poll = spawn("heappe.poll", self._poll_site())

    async def _poll_site(self) -> None:
        failures = 0
        while True:
            try:
                await self.book.sync()
            except HeappeFailed as error:
                log.info("the site does not answer", why=error.message)
                failures += 1
            else:
                failures = 0

            hurried = self._clock.monotonic() < self._hurry_until or self.book.is_starting
            pause = poll_pause_s(self._rules, hurried, failures)
            self._hurried.clear()

            try:
                async with asyncio.timeout(pause * self._clock.jitter(0.1)):
                    await self._hurried.wait()
            except TimeoutError:
                pass


def poll_pause_s(rules: HeappeRules, hurried: bool, failures: int) -> float:
    """The time until the next list. ``failures``: the number of most recent failures in a row. A
    server that is down is queried less and less often."""
    usual_s = min(rules.poll_s, rules.hurried_poll_s) if hurried else rules.poll_s
    longest_s = max(rules.poll_s, _LONGEST_POLL_S)
    return min(usual_s * 2.0 ** min(failures, 10), longest_s)


def _ids(handle: Handle) -> tuple[KernelId, str]:
    return KernelId(handle.state["kernel_id"]), str(handle.state["name"])
