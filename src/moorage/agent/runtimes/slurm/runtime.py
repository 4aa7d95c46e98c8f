"""Slurm runtime: each kernel is one batch job, submitted on a login node with Slurm's own commands.

The agent and the site's nodes share a file system, where each job's launcher leaves its marks. A
job is recovered by its name, which identifies its agent, and by its comment, which has the whole
kernel id. A submission that got no answer is never repeated. Instead, the agent waits until the job
appears.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace

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
from moorage.agent.runtimes.batch import JobName, agent_part, kernel_part, resolve
from moorage.agent.runtimes.batch.copying import CopyIn, CopyOut, pack, receive
from moorage.agent.runtimes.batch.doubts import DoubtLedger
from moorage.agent.runtimes.batch.nodes import NodeUsage
from moorage.agent.runtimes.execution import Command, Copy, ExecFailed, Execution
from moorage.agent.runtimes.slurm.commands import NoAccounting, Rejected, Slurm, script
from moorage.agent.runtimes.slurm.folders import HEARTBEAT, JobFolders, SlurmRecord
from moorage.agent.runtimes.slurm.interpretation import Marks, SlurmJob, interpret
from moorage.agent.runtimes.slurm.job_options import JobDefaults, sbatch_options
from moorage.agent.runtimes.slurm.listing import SlurmListing
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.logs import data_of
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import DoubtfulJob
from moorage.common.model.service_ports import ServicePort, port_token
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.slurm")
NAME = "slurm"
# Jobs outlive a silent agent, up to their walltime, for which sites allow days.
_SILENCE_GRACE_S = 7 * 86_400.0
# A restarted slurmctld answers again within a minute. Until then, the last answer is used.
_SILENCE_OF_SITE_S = 120.0
# After a request, the site is queried more often for a while.
_HURRY_S = 20.0
_HURRIED_POLL_S = 1.0
_DESTROY_S = 30.0
_DESTROY_POLL_S = 0.3
_NO_DEFAULTS = JobDefaults()
_ENDED = (ObservedState.EXITED, ObservedState.GONE)
# Descriptions of the attempts to resolve jobs in doubt.
_WATCHED = "it is not submitted again; if it appears, it is followed or cancelled"
_CANCELLED_UNLESS_ORDERED = (
    "it was reported as a kernel of this agent, and is cancelled unless it belongs to a session"
)


@dataclass(frozen=True, slots=True)
class SlurmRules:
    """An agent's rules. ``address``: the agent's address, from which a job's node derives its own.
    ``setup``: shell lines that run first in the job. ``heartbeat_s``: a job exits after this long
    without a sign of the agent; 0 means never. ``poll_s``: the time between two queries of the
    queue."""

    max_jobs: int
    python: str
    address: str = "127.0.0.1"
    setup: str = ""
    defaults: JobDefaults = _NO_DEFAULTS
    heartbeat_s: float = 1800.0
    poll_s: float = 10.0
    log_max_bytes: int = 10 << 20
    log_keep_files: int = 3


class SlurmRuntime:
    """The runtime. ``identity``: the identity of the agent's state directory. It must be closed."""

    name = NAME
    silence_grace_s = _SILENCE_GRACE_S

    def __init__(
        self, slurm: Slurm, folders: JobFolders, rules: SlurmRules, clock: Clock, *, identity: str
    ) -> None:
        self._slurm = slurm
        self._folders = folders
        self._rules = rules
        self._clock = clock
        self._agent = agent_part(identity)
        self.capabilities = Capabilities(
            own_address=True,
            max_jobs=rules.max_jobs,
            exec=False,
            workspaces=False,
            clusters=False,
            usage=False,
            files=True,
        )
        self._listing = SlurmListing(slurm, self._agent, clock, self._on_job_change)
        self._changed: dict[str, asyncio.Event] = {}  # by job name, while a task waits
        self._last: dict[str, ObservedState] = {}
        self._has_accounting = True  # until the site answers that it has none
        self._hurried = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None
        self._hurry_until = float("-inf")
        self._answered_at = float("-inf")
        self._doubts = DoubtLedger(folders.work / f"doubtful-{self._agent}", NAME, clock)
        self._nodes = NodeUsage(lambda: slurm.nodes(rules.defaults.partition), clock)
        self.site_nodes = self._nodes.current

    async def close(self) -> None:
        await cancel_and_wait(self._poll)

    def doubtful_jobs(self) -> tuple[DoubtfulJob, ...]:
        return self._doubts.jobs()

    async def probe(self) -> Isolation:
        """Probe the site. This also shows jobs that the agent is alive."""
        try:
            await asyncio.to_thread(self._folders.prepare)
            await asyncio.to_thread(self._folders.beat, str(self._clock.now().timestamp()))
        except OSError as error:
            raise RuntimeFailed(
                f"agent.slurm_work_dir = {self._folders.work}: {error.strerror}",
                next_step="name a directory that this login node and the nodes of the site share",
            ) from None

        await self._listing.refresh(self._clock.monotonic() - self._rules.poll_s)
        await self._nodes.refresh()
        return Isolation()

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        return ()

    async def create(self, launch: Launch) -> Handle:
        name = str(JobName(self._agent, kernel_part(launch.kernel_id)))
        handle = Handle(NAME, {"kernel_id": launch.kernel_id, "name": name})
        folder = self._folders.path(launch.kernel_id)
        output = self._folders.output(launch.kernel_id)
        options = sbatch_options(
            launch, name, folder=folder, output=output, defaults=self._rules.defaults
        )

        # This is written first, so that if the agent dies in between, its next run finds a
        # submission in doubt and does not repeat it.
        record = SlurmRecord(launch.kernel_id, name, doubt_since=self._now())
        try:
            launcher = await asyncio.to_thread(self._folders.prepare)
            await asyncio.to_thread(self._folders.beat, str(self._now()))
            text = script(self._rules.python, str(launcher), str(folder), self._rules.setup)
            if not await asyncio.to_thread(self._folders.create, record, self._spec(launch), text):
                return handle
        except OSError as error:
            raise CreateFailed(f"cannot write to {self._folders.work}: {error}") from None

        try:
            job_id = await self._slurm.submit(options, self._folders.script(launch.kernel_id))
        except Rejected as error:
            await asyncio.to_thread(self._folders.remove, launch.kernel_id)
            raise CreateFailed(
                f"Slurm refuses the job: {error.message}", clean=True, next_step=error.next_step
            ) from None
        except RuntimeFailed as error:
            self._doubts.note(
                name, "", f"its submission was not answered: {error.message}", _WATCHED
            )
            await self._doubts.save()
        else:
            await asyncio.to_thread(
                self._folders.save, replace(record, job_id=job_id, doubt_since=0.0)
            )

        self._hurry()
        return handle

    async def observe(self, handle: Handle) -> RuntimeObservation:
        kernel_id, name = _ids(handle)
        if (changed := self._changed.get(name)) is not None:
            changed.clear()

        try:
            seen = await self._observe(kernel_id, name)
        except OSError as error:
            seen = RuntimeObservation(
                ObservedState.UNKNOWN, detail=f"cannot read {self._folders.work}: {error}"
            )

        self._last[name] = seen.state
        return seen

    async def _observe(self, kernel_id: KernelId, name: str) -> RuntimeObservation:
        failure = await self._ask(self._clock.monotonic() - 2 * self._rules.poll_s)
        record, marks = await asyncio.to_thread(self._read, kernel_id)
        if not failure and not self._listing.jobs(name) and marks.exit is None:
            # An answer may be older than the job, and marks that were read before the answer may be
            # older than the job's end.
            failure = await self._ask()
            record, marks = await asyncio.to_thread(self._read, kernel_id)

        jobs = self._listing.jobs(name)
        if record is None and not failure and all(job.is_ending for job in jobs):
            return RuntimeObservation(ObservedState.GONE)

        record = record or SlurmRecord(kernel_id, name)
        doubt_s = self._now() - record.doubt_since if record.doubt_since and not failure else None
        verdict = resolve(record.job_id, [job.candidate() for job in jobs], doubt_s=doubt_s)
        job = next((job for job in jobs if job.job_id == verdict.job_id), None)
        if failure and marks.exit is None and (job is None or self._is_silent()):
            return RuntimeObservation(
                ObservedState.UNKNOWN, detail=failure, ends_at=record.ends_at or None
            )

        if job is None and verdict.job_id and marks.exit is None and not failure:
            job = await self._accounted(verdict.job_id)

        await self._settle(record, job, verdict.job_id, verdict.doubles)
        return interpret(job, marks, submitted=bool(verdict.job_id), never=verdict.never)

    async def wait(self, handle: Handle, last_state: ObservedState) -> None:
        _, name = _ids(handle)
        if last_state in _ENDED:
            return
        if self._poll is None or self._poll.done():
            self._poll = spawn("slurm.poll", self._poll_queue())
        await self._changed.setdefault(name, asyncio.Event()).wait()

    async def stop(self, handle: Handle, grace_s: float) -> None:
        kernel_id, name = _ids(handle)
        await asyncio.to_thread(self._folders.note_stop, kernel_id, grace_s)
        await self._listing.refresh()
        ids = {job.job_id for job in self._listing.jobs(name) if not job.is_ending}
        # A job may start between the two calls.
        await self._slurm.cancel(ids, "--state=PENDING")
        await self._slurm.cancel(ids, "--state=RUNNING", "--batch", "--signal=TERM")
        self._hurry()

    async def destroy(self, handle: Handle) -> None:
        kernel_id, name = _ids(handle)
        await asyncio.to_thread(self._folders.note_stop, kernel_id, 0.0)
        until = self._clock.monotonic() + _DESTROY_S
        while True:
            await self._listing.refresh()
            left = [job for job in self._listing.jobs(name) if not job.is_ending]
            if not left:
                break

            await self._slurm.cancel(
                (job.job_id for job in left if job.state != "PENDING"), "--signal=KILL", "--full"
            )
            await self._slurm.cancel(job.job_id for job in left)
            if self._clock.monotonic() >= until:
                ids = ", ".join(job.job_id for job in left)
                for job in left:
                    why = f"it should have ended, but the site shows it as {job.state}"
                    self._doubts.note(name, job.job_id, why, "cancelled repeatedly", listed=True)

                await self._doubts.save()
                raise RuntimeFailed(
                    f"the site has not ended job {ids} of {name}; it may still be billed"
                )

            await asyncio.sleep(_DESTROY_POLL_S)

        # A job whose submission is in doubt may still appear. `find` then lists it without an
        # owner.
        await asyncio.to_thread(self._folders.remove, kernel_id)
        self._doubts.settle(name)
        await self._doubts.save()
        self._last.pop(name, None)
        if (changed := self._changed.pop(name, None)) is not None:
            changed.set()

    async def find(self) -> dict[KernelId, Handle]:
        await self._listing.refresh()
        try:
            records = await asyncio.to_thread(self._folders.load)
        except OSError as error:
            raise RuntimeFailed(f"cannot read {self._folders.work}: {error}") from None

        names = {
            record.name: record.kernel_id
            for record in records.values()
            if self._is_ours(record.name)
        }
        everything = [job for jobs in self._listing.all().values() for job in jobs]
        self._doubts.settle_unlisted({job.job_id for job in everything if not job.is_ending})

        for name, jobs in self._listing.all().items():
            active = [job for job in jobs if not job.is_ending]
            if name in names or not active:
                continue

            ids = ", ".join(job.job_id for job in active)
            for job in active:
                why = (
                    f"the site shows it as {job.state}, but no kernel of this agent is known to "
                    "run in it"
                )
                self._doubts.note(name, job.job_id, why, _CANCELLED_UNLESS_ORDERED, listed=True)

            kernel_id = KernelId(active[0].kernel_id)
            if kernel_id and str(JobName(self._agent, kernel_part(kernel_id))) == name:
                names[name] = kernel_id
            else:
                log.warning("cancelling a job whose kernel cannot be identified", job=name, ids=ids)
                await self._slurm.cancel(job.job_id for job in active)

        await self._doubts.save()
        return {k: Handle(NAME, {"kernel_id": k, "name": name}) for name, k in names.items()}

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        return {}

    def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        return data_of(self.log_range(handle, LogRange(tail_lines, follow)))

    def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        kernel_id, name = _ids(handle)
        return self._folders.open_log(kernel_id, wanted, lambda: self._last.get(name) not in _ENDED)

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return await asyncio.to_thread(self._folders.log_tail, _ids(handle)[0], max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        raise ExecFailed(
            "runtime slurm cannot run commands inside jobs",
            next_step=(
                "use `srun --jobid=ID --overlap` on the site; the id is in `moorage describe`"
            ),
        )

    async def copy(self, handle: Handle, copy: Copy) -> Execution:
        work = self._folders.files(_ids(handle)[0])
        if copy.into:
            return CopyIn(lambda source, is_complete: receive(work, copy, source, is_complete))
        return CopyOut(lambda sink: pack(work, copy.path, sink))

    # Parts.

    def _spec(self, launch: Launch) -> dict[str, object]:
        rules = self._rules
        return {
            "argv": launch.argv,
            "env": launch.env,
            "files": [(file.path, file.text, file.mode) for file in launch.files],
            "serves": launch.serves,
            "ports": {app.name: port_token(app.name) for app in launch.apps},
            "stop_grace_s": launch.stop_grace_s,
            "agent": rules.address,
            "heartbeat": str(self._folders.work / HEARTBEAT),
            "heartbeat_s": rules.heartbeat_s,
            "log_max_bytes": rules.log_max_bytes,
            "log_keep_files": rules.log_keep_files,
        }

    def _read(self, kernel_id: KernelId) -> tuple[SlurmRecord | None, Marks]:
        record = self._folders.record(kernel_id)
        return record, self._folders.marks(record) if record else Marks()

    async def _settle(
        self, record: SlurmRecord, job: SlurmJob | None, job_id: str, doubles: tuple[str, ...]
    ) -> None:
        """Record facts that have become certain, and cancel duplicates."""
        ends_at = record.ends_at
        if job is not None and job.state == "RUNNING" and job.end is not None:
            ends_at = job.end

        known = replace(
            record,
            job_id=job_id,
            doubt_since=0.0 if job_id else record.doubt_since,
            ends_at=ends_at,
        )
        if known != record and self._folders.path(record.kernel_id).is_dir():
            await asyncio.to_thread(self._folders.save, known)

        if job_id:
            self._doubts.settle(record.name, "")
        elif record.doubt_since and not self._doubts.has(record.name, ""):
            self._doubts.note(record.name, "", "its submission was not answered", _WATCHED)

        await self._doubts.save()
        if doubles:
            log.warning(
                "cancelling duplicates of a job", job=record.name, follows=job_id, doubles=doubles
            )
            await self._slurm.cancel(doubles)

    async def _accounted(self, job_id: str) -> SlurmJob | None:
        """How a job that the queue has forgotten ended, if the site keeps accounting."""
        if not self._has_accounting:
            return None

        try:
            job = await self._slurm.accounted(job_id)
        except NoAccounting as error:
            self._has_accounting = False
            log.info(
                "the site keeps no accounting: the outcome of forgotten jobs is unknown",
                why=error.message,
            )
            return None
        except RuntimeFailed as error:
            log.warning("the accounting of the site does not answer", job=job_id, why=error.message)
            return None

        return job if job is not None and not job.is_active else None

    async def _ask(self, since: float | None = None) -> str:
        """Query the site. Returns why it does not answer, or "" if it does."""
        try:
            await self._listing.refresh(since)
        except RuntimeFailed as error:
            return error.message or "the site does not answer"
        self._answered_at = self._clock.monotonic()
        return ""

    def _is_silent(self) -> bool:
        return self._clock.monotonic() - self._answered_at > _SILENCE_OF_SITE_S

    def _is_ours(self, name: str) -> bool:
        parsed = JobName.parse(name)
        return parsed is not None and parsed.agent == self._agent

    def _on_job_change(self, name: str) -> None:
        if (changed := self._changed.get(name)) is not None:
            changed.set()

    def _hurry(self) -> None:
        self._hurry_until = self._clock.monotonic() + _HURRY_S
        self._hurried.set()

    async def _poll_queue(self) -> None:
        """Poll the queue for tasks that wait for a job to change."""
        while True:
            hurried = self._clock.monotonic() < self._hurry_until
            pause = min(self._rules.poll_s, _HURRIED_POLL_S) if hurried else self._rules.poll_s
            self._hurried.clear()

            try:
                async with asyncio.timeout(pause):
                    await self._hurried.wait()
                continue
            except TimeoutError:
                pass

            failure = await self._ask()
            for name, changed in self._changed.items():
                # Launchers' marks, doubts and silence are not changes in the queue.
                if failure or self._last.get(name) is not ObservedState.RUNNING:
                    changed.set()

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _ids(handle: Handle) -> tuple[KernelId, str]:
    return KernelId(handle.state["kernel_id"]), str(handle.state["name"])
