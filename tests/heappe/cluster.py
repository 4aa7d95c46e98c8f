"""Clusters behind the test server: the truth that HEAppE's database copies late.

``ScriptedCluster`` plays jobs on the server's clock, with engines that really listen. Another back
end implements ``Cluster``; jobs have real directories in all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from tests.heappe.engine import Engine

ACTIVE = frozenset({"PENDING", "RUNNING", "COMPLETING"})


class Refused(Exception):
    """``sbatch`` printed an error."""


@dataclass(frozen=True)
class Submission:
    """One task as the scheduler receives it. ``arguments`` are the values of the template's
    parameters."""

    name: str
    task_name: str
    walltime_s: int
    nodes: int
    queue: str
    command: str
    arguments: tuple[str, ...]
    directory: Path
    stdout: str = "stdout.txt"
    stderr: str = "stderr.txt"
    progress: str = "progress.txt"

    def wrapped(self) -> str:
        """The command line as HEAppE writes it between the quotes of ``sbatch --wrap '...'``: each
        value with .NET's ``Regex.Escape``, not quoted, and a redirection that covers only the first
        command."""
        values = " ".join(_regex_escape(value) for value in self.arguments)
        first, semicolon, rest = self.command.partition(";")
        return f"cd {self.directory}; {first} {values} 1>>{self.stdout} 2>>{self.stderr}{semicolon}{rest}"


def _regex_escape(value: str) -> str:
    letters = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"}
    return re.sub(
        r"[\\*+?|{\[()^$.# \n\t\r\f]", lambda found: letters.get(found[0], "\\" + found[0]), value
    )


@dataclass
class TruthJob:
    """A job as ``scontrol`` shows it; ``state`` is Slurm's. ``started`` of a pending job is the
    scheduler's estimate."""

    scheduler_id: str
    name: str
    state: str
    reason: str = "None"
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    exit_code: int = 0
    nodes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class Cluster(Protocol):
    jobs: list[TruthJob]

    async def submit(self, job: Submission, now: datetime) -> str:
        """Returns the scheduler's id. Raises ``Refused``."""
        ...

    async def cancel(self, scheduler_id: str, now: datetime) -> None: ...

    async def settle(self, now: datetime) -> None:
        """Bring ``jobs`` up to date."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Script:
    """A scripted job's life. Times are seconds on the server's clock.

    ``engine``: None runs ``Engine`` in this process, False nothing, "program" the template's
    command in a shell. ``files``: names with their text, or a function of the port; they are
    written once the engine listens.
    """

    queue_s: float = 0.0
    reason: str = "Priority"
    run_s: float | None = None
    exit_code: int = 0
    end_state: str = ""
    completing_s: float = 0.0
    load_s: float = 0.0
    engine: Literal["program", False] | None = None
    model: str = "tiny"
    api_key: str = ""
    port: int = 0
    files: dict[str, str | Callable[[int], str]] = field(default_factory=dict)


@dataclass
class _Played:
    truth: TruthJob
    script: Script
    job: Submission
    engine: Engine | None = None
    program: asyncio.subprocess.Process | None = None
    begun: bool = False
    over: datetime | None = None
    final: str = ""


class ScriptedCluster:
    """Plays each job according to ``scripts[name]``, or otherwise ``script(job)``."""

    def __init__(self, first_id: int = 900_001) -> None:
        self.jobs: list[TruthJob] = []
        self.script: Callable[[Submission], Script] = lambda job: Script()
        self.scripts: dict[str, Script] = {}
        self.started = Counter[str]()
        self._played: dict[str, _Played] = {}
        self._next = first_id
        self.holding = False

    def engine(self, name: str) -> Engine:
        """The engine of the newest job with that name."""
        found = [p for p in self._played.values() if p.job.name == name and p.engine is not None]
        engine = found[-1].engine
        assert engine is not None
        return engine

    async def submit(self, job: Submission, now: datetime) -> str:
        number = str(self._next)
        self._next = self._next + 1
        script = self.scripts.get(job.name) or self.script(job)
        truth = TruthJob(number, job.name, "PENDING", script.reason, submitted=now)
        truth.started = now + timedelta(seconds=script.queue_s) if script.queue_s else None
        self.jobs.append(truth)
        self._played[number] = _Played(truth, script, job)
        await self._advance(self._played[number], now)
        return number

    async def cancel(self, scheduler_id: str, now: datetime) -> None:
        played = self._played.get(scheduler_id)
        if played is not None and played.truth.state in ("PENDING", "RUNNING"):
            await self._end(played, "CANCELLED", now)
            await self._advance(played, now)

    async def settle(self, now: datetime) -> None:
        for played in list(self._played.values()):
            await self._advance(played, now)

    async def kill(self, name: str, state: str = "NODE_FAIL") -> None:
        """End a job at once, as the cluster does of its own accord."""
        for played in self._played.values():
            if played.job.name == name and played.truth.state in ("PENDING", "RUNNING"):
                await self._end(played, state, played.truth.started or played.truth.submitted)
                played.truth.state = state

    async def close(self) -> None:
        for played in self._played.values():
            await self._stop(played)

    async def _advance(self, played: _Played, now: datetime) -> None:
        truth = played.truth
        script = played.script
        if truth.state == "PENDING" and not self.holding:
            due = truth.submitted + timedelta(seconds=script.queue_s)
            if due <= now:
                truth.state = "RUNNING"
                truth.reason = "None"
                truth.started = due
                width = max(1, played.job.nodes)
                truth.nodes = tuple(f"cn{number:03}" for number in range(1, width + 1))
                truth.addresses = tuple(f"127.0.1.{number}" for number in range(1, width + 1))
                self.started[played.job.name] += 1

        if truth.state == "RUNNING":
            await self._run(played, now)

        if (
            truth.state == "COMPLETING"
            and played.over + timedelta(seconds=script.completing_s) <= now
        ):
            truth.state = played.final

    async def _run(self, played: _Played, now: datetime) -> None:
        truth = played.truth
        script = played.script
        elapsed = (now - truth.started).total_seconds()
        ends = min(script.run_s if script.run_s is not None else 1e12, played.job.walltime_s)
        if not played.begun and script.load_s <= elapsed < ends:
            played.begun = True
            await self._begin(played)

        if played.program is not None and played.program.returncode is not None:
            truth.exit_code = played.program.returncode
            await self._end(played, "FAILED" if truth.exit_code else "COMPLETED", now)
        elif elapsed >= ends:
            when = truth.started + timedelta(seconds=ends)
            if ends == played.job.walltime_s and script.run_s is None:
                await self._end(played, "TIMEOUT", when)
            else:
                truth.exit_code = script.exit_code
                state = script.end_state or ("FAILED" if script.exit_code else "COMPLETED")
                await self._end(played, state, when)

    async def _begin(self, played: _Played) -> None:
        script = played.script
        job = played.job
        if not job.directory.exists():  # Slurm cannot open the output
            played.truth.exit_code = 1
            await self._end(played, "FAILED", played.truth.started)
            return

        if script.engine == "program":
            line = f"exec bash -c '{job.wrapped()}'"
            played.program = await asyncio.create_subprocess_exec(
                "bash", "-c", line, cwd=job.directory, start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": str(job.directory),
                     "SLURM_JOB_ID": played.truth.scheduler_id},
            )  # fmt: skip
            return

        if script.engine is None:
            played.engine = Engine(script.model, script.api_key)
            await played.engine.start(played.truth.addresses[0], script.port)

        port = played.engine.port if played.engine else script.port
        for name, text in (
            {job.progress: str(port), job.stdout: "engine started\n"} | script.files
        ).items():
            (job.directory / name).write_text(text(port) if callable(text) else text)

    async def _end(self, played: _Played, state: str, when: datetime) -> None:
        played.over = when
        played.truth.ended = when
        played.final = state
        played.truth.state = "COMPLETING" if played.script.completing_s and played.begun else state
        await self._stop(played)

    async def _stop(self, played: _Played) -> None:
        if played.engine is not None:
            await played.engine.kill()

        program = played.program
        if program is not None and program.returncode is None:
            for sign, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
                try:
                    os.killpg(program.pid, sign)
                    async with asyncio.timeout(patience_s):
                        await program.wait()
                        # the shell ends at once, but a job has ended only when all of its processes
                        # have
                        while True:
                            os.killpg(program.pid, 0)
                            await asyncio.sleep(0.01)
                except ProcessLookupError:
                    break
                except TimeoutError:
                    continue


def active(jobs: Iterable[TruthJob]) -> list[TruthJob]:
    return [job for job in jobs if job.state in ACTIVE]
