"""Slurm's commands: runs ``sbatch``, ``squeue``, ``scancel`` and ``sacct``, and parses their
output.

A command that fails or does not answer raises ``RuntimeFailed``, or ``Rejected`` if Slurm has
refused it and nothing was created.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.slurm.interpretation import SlurmJob
from moorage.common.model.kernel import SiteNodes

# If slurmctld is down, its clients fail after about 9 s. Under load, it answers late.
TIMEOUT_S = 30.0
_FIELDS = ("JobID", "State", "Reason", "StartTime", "EndTime", "exit_code", "Comment", "Name")
_COMMENT = "moorage:"
# scancel exits with the lowest byte of the error, and prints nothing for ESLURM_ALREADY_DONE
# (2021).
_ALREADY_DONE = 2021 & 0xFF
_ACCOUNTED = "--format=JobIDRaw,State,ExitCode,Start,End"
# Answers that leave open whether slurmctld has accepted a job. Every other output of sbatch is a
# refusal.
_IN_DOUBT = re.compile(
    r"timed out|unable to contact|zero bytes|connection (refused|reset)|communication|socket|"
    r"temporarily unavailable|backup controller|standby|try again|unexpected message|no "
    r"response|end of file",
    re.IGNORECASE,
)


class NoAccounting(RuntimeFailed):
    """The site does not keep accounting of jobs."""

    code = "no-accounting"


class Rejected(RuntimeFailed):
    """Slurm has refused the request."""

    code = "rejected"


class Slurm:
    """Slurm's commands. ``folder``: their directory; "" means PATH. ``conf``: the cluster's
    configuration; "" means the node's. ``calls``: the number of calls by command."""

    def __init__(self, folder: str = "", *, conf: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._cluster = {"SLURM_CONF": conf} if conf else {}
        self.calls = 0

    async def submit(self, options: Sequence[str], script: Path) -> str:
        """Submit a job that runs the file ``script``, and return its id. Raises ``Rejected``, or
        ``RuntimeFailed`` if the job may exist anyway."""
        code, output, error = await self._run("sbatch", "--parsable", *options, str(script))
        job_id = output.strip().partition(";")[0]
        if code == 0 and job_id.isdigit():
            return job_id

        message = (
            _last_line(error) or f"sbatch exited with {code} and printed {output.strip()[:200]!r}"
        )
        if code > 0 and error.strip() and not _IN_DOUBT.search(error):
            raise Rejected(message)

        raise RuntimeFailed(message)

    async def test(self, options: Sequence[str]) -> str:
        """Test what Slurm would do with a job that has these options. Raises ``RuntimeFailed`` if
        Slurm would refuse it."""
        code, _, error = await self._run("sbatch", "--test-only", *options, "--wrap=true")
        if code != 0:
            raise RuntimeFailed(_last_line(error) or f"sbatch exited with {code}")
        return _last_line(error)

    async def jobs(self) -> list[SlurmJob]:
        """All of this user's jobs that Slurm remembers. Raises ``RuntimeFailed``, because no answer
        never means "none"."""
        arguments = ("--noheader", "--states=all", f"--user={os.getuid()}", _format())
        code, output, error = await self._run("squeue", *arguments)
        if code != 0:
            raise RuntimeFailed(_last_line(error) or f"squeue exited with {code}")
        return parse_jobs(output)

    async def accounted(self, job_id: str) -> SlurmJob | None:
        """A job that may have left the queue, from the site's accounting; None if it is unknown
        there. Raises ``NoAccounting`` if the site has none, and ``RuntimeFailed`` if there is no
        answer."""
        arguments = ("--noheader", "--parsable2", "--allocations", f"--jobs={job_id}", _ACCOUNTED)
        try:
            code, output, error = await self._run("sacct", *arguments)
        except Rejected as missing:
            raise NoAccounting(missing.message) from None

        if code != 0:
            message = _last_line(error) or f"sacct exited with {code}"
            raise (NoAccounting if "accounting storage is disabled" in error else RuntimeFailed)(
                message
            )

        return parse_accounted(output, job_id)

    async def cancel(self, job_ids: Iterable[str], *options: str) -> None:
        """Cancel jobs. Jobs that have ended or are unknown are not treated as failures."""
        ids = sorted(job_ids)
        if not ids:
            return
        code, _, error = await self._run("scancel", *options, *ids)
        has_ended = code == _ALREADY_DONE and not error.strip()
        known = re.search(r"invalid job id|already complet|not pending", error, re.IGNORECASE)
        if code != 0 and not has_ended and not known:
            raise RuntimeFailed(_last_line(error) or f"scancel exited with {code}")

    async def version(self) -> str:
        code, output, error = await self._run("sinfo", "--version")
        if code != 0:
            raise RuntimeFailed(_last_line(error) or f"sinfo exited with {code}")
        return output.strip()

    async def partitions(self) -> list[tuple[str, str, str]]:
        """The name, availability and walltime limit of each partition. The default one is marked
        with *."""
        code, output, error = await self._run(
            "sinfo", "--noheader", "--summarize", "--format=%P|%a|%l"
        )
        if code != 0:
            raise RuntimeFailed(_last_line(error) or f"sinfo exited with {code}")
        rows = [line.strip().split("|") for line in output.splitlines() if line.count("|") == 2]
        return [(name, available, limit) for name, available, limit in rows]

    async def nodes(self, partition: str) -> tuple[SiteNodes, ...]:
        """A partition's nodes; "" means the default partition. Raises ``RuntimeFailed``."""
        chosen = (f"--partition={partition}",) if partition else ()
        arguments = ("--noheader", "--summarize", "--format=%P|%F", *chosen)
        code, output, error = await self._run("sinfo", *arguments)
        if code != 0:
            raise RuntimeFailed(_last_line(error) or f"sinfo exited with {code}")
        return parse_nodes(output, partition)

    async def _run(self, program: str, *arguments: str) -> tuple[int, str, str]:
        self.calls += 1
        path = os.path.join(self._folder, program) if self._folder else program
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *(path, *arguments),
                env=os.environ | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"} | self._cluster,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except OSError as error:
            raise Rejected(
                f"cannot run {path}: {error.strerror}",
                next_step="run the agent on a login node of the site, or set agent.slurm_commands",
            ) from None

        try:
            async with asyncio.timeout(self._timeout_s):
                output, errors = await process.communicate()
        except TimeoutError:
            raise RuntimeFailed(f"{program} did not answer within {self._timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                # A killed process ends immediately. Otherwise, its transport would be left to the
                # garbage collector.
                await asyncio.shield(process.wait())

        return (
            process.returncode or 0,
            output.decode(errors="replace"),
            errors.decode(errors="replace"),
        )


def parse_nodes(output: str, partition: str) -> tuple[SiteNodes, ...]:
    """Parse lines such as ``gpu*|3/4/1/8``: allocated, idle, other and all nodes, with a star for
    the default partition. Nodes that are neither allocated nor idle accept no jobs."""
    rows = [line.strip().partition("|") for line in output.splitlines()]
    counts = {
        name: numbers.split("/")
        for name, _, numbers in rows
        if re.fullmatch(r"(\d+/){3}\d+", numbers)
    }
    shown = [name for name in counts if partition or name.endswith("*")] or list(counts)

    return tuple(
        SiteNodes(
            name.rstrip("*"), int(counts[name][3]) - int(counts[name][1]), int(counts[name][3])
        )
        for name in shown
    )


def parse_jobs(output: str) -> list[SlurmJob]:
    """Parse jobs. Unreadable rows are left out, because the user may have other jobs besides
    ours."""
    jobs = []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split("|", len(_FIELDS) - 1)]
        if len(fields) != len(_FIELDS):
            continue

        job_id, state, reason, start, end, status, comment, name = fields
        kernel_id = comment[len(_COMMENT) :] if comment.startswith(_COMMENT) else ""
        jobs.append(
            SlurmJob(
                job_id,
                name.rstrip("|").rstrip(),
                state=state.rstrip("+"),
                reason=reason,
                start=_time(start),
                end=_time(end),
                status=int(status) if status.isdigit() else 0,
                kernel_id=kernel_id,
            )
        )

    return jobs


def parse_accounted(output: str, job_id: str) -> SlurmJob | None:
    """Parse rows of ``sacct``: a state such as ``CANCELLED by 1000``, and an exit code and a signal
    as ``0:9``."""
    for line in output.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5 or fields[0] != job_id or not fields[1]:
            continue

        _, state, status, start, end = fields
        code, _, number = status.partition(":")
        known = code.isdigit() and number.isdigit()
        waited = (int(code) << 8 | int(number)) if known else 0

        return SlurmJob(
            job_id,
            "",
            state=state.split()[0],
            reason="",
            start=_time(start),
            end=_time(end),
            status=waited,
        )

    return None


def comment(kernel_id: str) -> str:
    return f"--comment={_COMMENT}{kernel_id}"


def script(python: str, launcher: str, folder: str, setup: str) -> str:
    """The job script. It uses a login shell, which runs the site's setup for users, such as
    modules."""
    command = " ".join(shlex.quote(word) for word in (python, launcher, folder))
    return f"#!/bin/bash -l\n{setup.rstrip()}\nexec {command}\n"


def _format() -> str:
    # Without a width, a field is cut off at 20 characters.
    return "--Format=" + ",".join(f"{field}:100|" for field in _FIELDS)


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) else None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("sbatch: ").removeprefix("error: ")[:500] if lines else ""
