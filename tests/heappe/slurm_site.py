"""Back end of the test server over a running Slurm: ``sbatch``, ``scontrol`` and ``scancel`` as
HEAppE calls them on a login node.

All nodes have this machine's loopback address. Times are on the system's clock.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.heappe.cluster import ACTIVE, Refused, Submission, TruthJob

_LOOK_EVERY_S = 0.25
# HEAppE treats these words in sbatch's output as a failure, even if the job was accepted.
_BAD = re.compile(r"error|Invalid|Failed")


class SlurmSite:
    """``env``: the environment that Slurm's commands need. ``partition`` replaces the node type's
    queue. ``user``: the account of the jobs, or "" for this process's. ``unreachable``: Slurm did
    not answer the last call."""

    def __init__(self, env: Mapping[str, str], partition: str = "", user: str = "") -> None:
        self.jobs: list[TruthJob] = []
        self.partition = partition
        self.unreachable = False
        self._env = {name: env[name] for name in ("PATH", "SLURM_CONF") if name in env}
        self._env |= {"SLURM_TIME_FORMAT": "%s", "LANG": "C.UTF-8", "HOME": "/tmp"}
        self._as: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
        self._looked_at = 0.0

    async def submit(self, job: Submission, now: datetime) -> str:
        minutes, seconds = divmod(job.walltime_s, 60)
        name = job.name.replace(" ", "_")
        queue = self.partition or job.queue
        files = f"-o {job.directory}/sbatch.out -e {job.directory}/sbatch.err"
        line = (
            f"sbatch -J {name} -p {queue} -t {minutes}:{seconds:02} -D {job.directory} {files}"
            f" --no-requeue --wrap '{job.wrapped()}'"
        )
        code, out = await self._run("bash", "-c", line)
        if code or _BAD.search(out):
            raise Refused(out.strip())

        number = out.split()[-1]
        self.jobs.append(TruthJob(number, job.name, "PENDING", "None", submitted=now))
        self._looked_at = 0.0
        await self.settle(now)

        return number

    async def cancel(self, scheduler_id: str, now: datetime) -> None:
        code, out = await self._run("scancel", scheduler_id)
        if code:
            raise Refused(out.strip())
        self._looked_at = 0.0

    async def settle(self, now: datetime) -> None:
        waiting = [job for job in self.jobs if job.state in ACTIVE]
        loop = asyncio.get_running_loop()
        if not waiting or loop.time() - self._looked_at < _LOOK_EVERY_S:
            return

        self._looked_at = loop.time()
        code, out = await self._run("scontrol", "-o", "show", "jobs")
        self.unreachable = bool(code)
        if code:
            return

        shown = {}
        for line in out.splitlines():
            fields = dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", line))
            shown[fields.get("JobId", "")] = fields
        for job in waiting:
            if (fields := shown.get(job.scheduler_id)) is not None:
                _take_over(job, fields)

    async def close(self) -> None:
        live = [job.scheduler_id for job in self.jobs if job.state in ACTIVE]
        if live:
            await self._run("scancel", *live)

    async def _run(self, *argv: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env=self._env | {"PATH": os.environ["PATH"]}, **self._as,
        )  # fmt: skip
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace")


def _take_over(job: TruthJob, fields: dict[str, str]) -> None:
    job.state = fields["JobState"]
    job.reason = fields.get("Reason", "None")
    job.started = _moment(fields.get("StartTime", ""))
    job.ended = _moment(fields.get("EndTime", "")) if job.state not in ACTIVE else None
    job.exit_code = int(fields.get("ExitCode", "0:0").partition(":")[0])
    nodes = fields.get("NodeList", "")
    job.nodes = tuple(nodes.split(",")) if nodes not in ("", "(null)") else ()
    job.addresses = ("127.0.0.1",) * len(job.nodes)


def _moment(text: str) -> datetime | None:
    return datetime.fromtimestamp(int(text), UTC) if text.isdigit() else None
