"""Ledger of doubtful jobs, which a site may bill although no kernel is known to run in them.

It is kept in one of the agent's files, so that a restart does not lose it. An entry is removed once
it is settled: the job has appeared, has ended, or can no longer run.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.kernel import DoubtfulJob

log = structlog.get_logger("moorage.agent.doubts")
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class DoubtEntry:
    """A doubtful job. ``listed``: the site lists the job, so the doubt is settled once the site no
    longer does. ``until``: when the job can no longer run, in unix seconds; 0 if unknown."""

    job: DoubtfulJob
    listed: bool = False
    until: float = 0.0


class DoubtLedger:
    """The ledger. ``path``: its file. ``runtime``: the name of the runtime."""

    def __init__(self, path: Path, runtime: str, clock: Clock) -> None:
        self._path = path
        self._runtime = runtime
        self._clock = clock
        self._entries = _read(path)
        self._written = dict(self._entries)

    def note(
        self,
        name: str,
        job_id: str,
        why: str,
        tried: str = "",
        *,
        listed: bool = False,
        until: float = 0.0,
    ) -> None:
        """Note a doubt, which dates from when it was first noted. ``job_id``: empty while it is
        unknown."""
        before = self._entries.get((name, job_id))
        since = before.job.since if before is not None else self._clock.now().timestamp()
        job = DoubtfulJob(
            self._runtime, name, job_id=job_id, since=since, why=_text(why), tried=_text(tried)
        )
        if before is None:
            log.warning("a job is in doubt; the site may bill for it", job=name, id=job_id, why=why)

        self._entries[name, job_id] = DoubtEntry(job, listed, until)

    def has(self, name: str, job_id: str) -> bool:
        return (name, job_id) in self._entries

    def settle(self, name: str, job_id: str | None = None) -> None:
        """Settle a doubt. If ``job_id`` is None, settle the doubts about all jobs with this
        name."""
        for key in [k for k in self._entries if k[0] == name and job_id in (None, k[1])]:
            del self._entries[key]
            log.info("a job is not in doubt any more", job=name, id=key[1])

    def settle_unlisted(self, active: Collection[str]) -> None:
        """Settle the doubts about listed jobs. ``active``: the ids of all jobs that the site lists
        as waiting or running."""
        for (name, job_id), entry in list(self._entries.items()):
            if entry.listed and job_id not in active:
                self.settle(name, job_id)

    def jobs(self) -> tuple[DoubtfulJob, ...]:
        """The doubtful jobs, oldest first."""
        now = self._clock.now().timestamp()
        for (name, job_id), entry in list(self._entries.items()):
            if entry.until and now > entry.until:
                self.settle(name, job_id)
        return tuple(
            sorted((e.job for e in self._entries.values()), key=lambda job: (job.since, job.name))
        )

    async def save(self) -> None:
        """Write the file if anything has changed. A failure is logged, and the next call tries
        again."""
        if self._entries != self._written:
            await asyncio.to_thread(self._write, dict(self._entries))

    def _write(self, entries: dict[tuple[str, str], DoubtEntry]) -> None:
        # A file per thread, because an abandoned write continues.
        new = self._path.with_suffix(f".{threading.get_ident()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(json.dumps([asdict(entry) for entry in entries.values()]))

            os.replace(new, self._path)
        except OSError as error:
            log.error(
                "cannot write the list of doubtful jobs", path=str(self._path), error=str(error)
            )
        else:
            self._written = entries


def _read(path: Path) -> dict[tuple[str, str], DoubtEntry]:
    """Read the file. An unreadable file is treated as empty, because jobs still in doubt are found
    again."""
    try:
        rows = json.loads(path.read_text())
        found = [replace(DoubtEntry(**row), job=DoubtfulJob(**row["job"])) for row in rows]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.error("cannot read the list of doubtful jobs", path=str(path), error=str(error))
        return {}

    return {(entry.job.name, entry.job.job_id): entry for entry in found}


def _text(text: str) -> str:
    return text.replace("\0", "")[:_LONGEST]
