"""Tracked job: what the agent knows about one kernel's job, with the tunnel to its engine and its
log."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any

from moorage.agent.runtimes.base import RuntimeObservation
from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed
from moorage.agent.runtimes.heappe.interpretation import Doubt, Facts
from moorage.agent.runtimes.heappe.listing import Seen
from moorage.agent.runtimes.heappe.records import HeappeRecord
from moorage.agent.runtimes.heappe.relay import Relay
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper, TunnelTarget
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import Clock
from moorage.common.model.status import ObservedState

# The resolver on the login node may answer with an error, such as 3(NXDOMAIN).
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_REPLACEMENT = "\ufffd"
_PIECE = 65_536
# The bytes of an incomplete character.
_LONGEST_CUT = 3
Shown = tuple[ObservedState, str, float | None, bool]


@dataclass(eq=False)
class TrackedJob:
    """A job. ``seen``: its last listing; ``end_read``: its final record was searched for;
    ``attempts``: how often. ``ended_at``: since when the site has shown it as ended, monotonic;
    ``was_silent``: the job itself reported nothing at that time; ``begun_late``: it has started
    since. ``last``: the last observation. ``address``: its relay's address. ``removed``: its record
    has been removed for good; this changes under ``writing``, in a thread. ``doubt``: a doubt that
    the current facts do not show. ``cancelled``: its state at the last cancellation, and the
    time."""

    record: HeappeRecord
    seen: Seen | None = None
    end_read: bool = False
    attempts: int = 0
    ended_at: float | None = None
    was_silent: bool = False
    begun_late: bool = False
    keeper: TunnelKeeper | None = None
    relay: Relay | None = None
    address: tuple[str, int] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    last: Shown | None = None
    pulled_at: float = float("-inf")
    pulling: asyncio.Lock = field(default_factory=asyncio.Lock)
    removed: bool = False
    cancelled: tuple[wire.JobState, float] | None = None
    doubt: Doubt | None = None
    writing: threading.Lock = field(default_factory=threading.Lock)

    def facts(self, clock: Clock, refusal: str = "") -> Facts:
        """The facts about the job. ``refusal``: why the site does not list its jobs, if it gave a
        reason."""
        record = self.record
        now = clock.now().timestamp()
        mono = clock.monotonic()
        keeper = self.keeper
        seen = self.seen
        job = seen.job if seen is not None else None

        def wall(at: float | None) -> float | None:
            return None if at is None else now - (mono - at)

        return Facts(
            now=now,
            walltime_s=record.walltime_s,
            state=job.state if job is not None else wire.JobState.UNKNOWN,
            # An end that the database shows is final.
            seen_at=None if seen is None else now if self.end_read else seen.at,
            reason=(job.task.reason or job.task.error) if job is not None else "",
            refusal=refusal,
            started=(job.task.started or job.started) if job is not None else None,
            created=job.created if job is not None else None,
            created_at=record.created_at or None,
            doubted_at=record.submitting_at or None if not record.submitted else None,
            running_at=record.running_at or None,
            answered_at=wall(keeper.reach.answered_at) if keeper is not None else None,
            silent_at=wall(keeper.reach.silent_at) if keeper is not None else None,
            gone_at=wall(keeper.gone_since) if keeper is not None else None,
            gone_why=keeper.problem if keeper is not None else "",
            exit_code=record.exit_code,
            ended_at=record.ended_at or None,
            terminated=record.terminated,
            confirmed=self.end_read,
            begun_late=self.begun_late,
            stopping=record.stopping,
            serves=record.serves,
        )


def shown(seen: RuntimeObservation) -> Shown:
    """The part of an observation that is worth reporting, including why a job waits and until when,
    and whether its engine can be reached."""
    return seen.state, seen.detail, seen.expected_start, bool(seen.unreachable)


@dataclass(frozen=True, slots=True)
class Told:
    """The contents of a job's progress file. ``ours``: the job runs our program. ``port`` is 0
    until it listens. ``terminated``: the job received SIGTERM."""

    ours: bool = False
    port: int = 0
    key: str = field(default="", repr=False)
    host: str = ""
    exit_code: int | None = None
    terminated: bool = False


def read_progress(text: str) -> Told:
    """Parse lines of JSON from our program in the job. A plain number is the port of an engine
    without our program."""
    ours = False
    port = 0
    key = ""
    host = ""
    code = None
    terminated = False
    for line in text.splitlines():
        try:
            value: Any = json.loads(line)
        except ValueError:
            continue

        if isinstance(value, int):
            port = value
        elif isinstance(value, dict):
            ours = ours or value.get("moorage") == 1
            port = int(value.get("port") or port)
            key = str(value.get("key") or key)
            host = str(value.get("host") or host)
            code = value["exit"] if isinstance(value.get("exit"), int) else code
            terminated = terminated or value.get("terminated") is True

    return Told(ours, port, key=key, host=host, exit_code=code, terminated=terminated)


async def progress_of(client: HeappeClient, job: TrackedJob) -> Told:
    """Raises ``HeappeFailed``."""
    record = job.record
    parts = await client.file_parts(record.job_id, {(record.task_id, wire.PROGRESS_FILE): 0})
    return read_progress("".join(part.content for part in parts))


async def target_of(client: HeappeClient, job: TrackedJob, told: Told) -> TunnelTarget | None:
    """Where the job listens; None if that is not known yet. Raises ``HeappeFailed``."""
    if not told.port:
        return None
    named = job.seen.job.task.nodes if job.seen is not None else ()
    for node in (*await client.node_ips(job.record.task_id), told.host, *named):
        if _HOST.fullmatch(node):
            return TunnelTarget(node, told.port, told.key)
    return None


class JobLogs:
    """Job logs, copied into the agent's log store, where they outlive the jobs."""

    def __init__(self, client: HeappeClient, logs: LogStore) -> None:
        self._client = client
        self._logs = logs
        self._offsets: dict[str, int] = {}

    async def pull(self, job: TrackedJob) -> None:
        """Fetch new output. Raises ``HeappeFailed`` and ``OSError``."""
        record = job.record
        if not record.job_id or not record.running_at:
            return

        async with job.pulling:
            offset = self._offsets.get(record.kernel_id)
            if offset is None:
                offset = await asyncio.to_thread(_append, self._logs, record, b"")

            parts = await self._client.file_parts(
                record.job_id, {(record.task_id, wire.STDOUT_FILE): offset}
            )
            data, size = whole_characters(parts[0].content if parts else "")
            if data:
                await asyncio.to_thread(_append, self._logs, record, data)

            self._offsets[record.kernel_id] = offset + size

    async def pull_errors(self, job: TrackedJob) -> None:
        """Fetch the output from outside our program, such as the shell's, for a job without any
        other output."""
        record = job.record
        if self._logs.exists(record.kernel_id):
            return

        parts = await self._client.file_parts(
            record.job_id, {(record.task_id, wire.STDERR_FILE): 0}
        )
        if parts and parts[0].content:
            await asyncio.to_thread(_append, self._logs, record, parts[0].content.encode())

    async def pull_quietly(self, job: TrackedJob, older_than_s: float = 0.0) -> None:
        """Fetch new output unless this was done recently. A failure leaves the log unchanged."""
        now = asyncio.get_running_loop().time()
        if now - job.pulled_at < older_than_s:
            return
        job.pulled_at = now
        try:
            await self.pull(job)
        except (HeappeFailed, OSError):
            pass


def whole_characters(content: str) -> tuple[bytes, int]:
    """The text without an incomplete character at its end, and its length in bytes of the file. The
    length is needed because the server returns the requested offset, not the next one."""
    whole = content.rstrip(_REPLACEMENT)
    if len(content) - len(whole) > _LONGEST_CUT:
        whole = content  # not an incomplete character, but bytes that are not text
    return whole.encode(), len(whole.encode())


def _append(logs: LogStore, record: HeappeRecord, data: bytes) -> int:
    """The number of the log's next byte, which is its offset in the job's file."""
    if not data and not logs.exists(record.kernel_id):
        return 0
    writer = logs.writer(record.kernel_id)
    for start in range(0, len(data), _PIECE):
        writer.write(data[start : start + _PIECE])
    writer.close()
    return writer.end
