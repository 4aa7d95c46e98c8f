"""Diagnostics of a Slurm site for ``moorage agent doctor``: what an agent with runtime slurm needs.

The checks query Slurm without submitting anything: ``sbatch --test-only`` checks partition,
account, QOS and walltime.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from moorage.agent.runtimes import Launch, RuntimeFailed
from moorage.agent.runtimes.slurm.commands import Slurm
from moorage.agent.runtimes.slurm.construction import commands_of, defaults_of, work_directory
from moorage.agent.runtimes.slurm.job_options import sbatch_options
from moorage.common.config.settings import AgentSettings
from moorage.common.model.ids import KernelId
from moorage.server.doctor.checks import CheckResult

_NAME = "slurm"


async def check_slurm(agent: AgentSettings, state: Path) -> list[CheckResult]:
    slurm = commands_of(agent)
    folder = work_directory(agent, state)
    results = [await asyncio.to_thread(_work_directory, folder)]
    try:
        version = await slurm.version()
        partitions = await slurm.partitions()
        jobs = await slurm.jobs()
    except RuntimeFailed as error:
        next_step = (
            error.next_step or "run the agent on a login node of the site, where squeue works"
        )
        return [*results, CheckResult("fail", _NAME, error.message, next_step)]

    waiting = sum(job.is_active for job in jobs)
    results.append(
        CheckResult("ok", _NAME, f"{version}, {waiting} jobs of this user are waiting or running")
    )
    results.append(_partition(agent.slurm_partition, partitions))
    results.append(await _accounting(slurm))
    launch = Launch(KernelId("doctor"), ("true",), {})
    options = sbatch_options(
        launch,
        "mg-doctor",
        folder=Path("/tmp"),
        output=Path(os.devnull),
        defaults=defaults_of(agent),
    )
    try:
        answer = await slurm.test(options)
    except RuntimeFailed as error:
        next_step = "check agent.slurm_partition, _account, _qos, _walltime_s and _options"
        return [*results, CheckResult("fail", "slurm job", error.message, next_step)]

    return [*results, CheckResult("ok", "slurm job", answer or "a job of one CPU is accepted")]


async def _accounting(slurm: Slurm) -> CheckResult:
    try:
        await slurm.accounted("1")
    except RuntimeFailed as error:
        detail = f"the outcome of a job is unknown once squeue has forgotten it: {error.message}"
        return CheckResult(
            "warn", "slurm accounting", detail, "ask the site for sacct, or ignore this"
        )

    return CheckResult(
        "ok", "slurm accounting", "sacct reports the outcome of jobs that squeue has forgotten"
    )


def _work_directory(folder: Path) -> CheckResult:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        next_step = "set agent.slurm_work_dir to a directory that login and compute nodes share"
        return CheckResult("fail", "slurm work_dir", f"{folder}: {error.strerror}", next_step)

    return CheckResult(
        "ok", "slurm work_dir", f"{folder}; compute nodes must see it at the same path"
    )


def _partition(wanted: str, partitions: list[tuple[str, str, str]]) -> CheckResult:
    by_name = {name.rstrip("*"): (available, limit) for name, available, limit in partitions}
    default = next((name.rstrip("*") for name, *_ in partitions if name.endswith("*")), "")
    name = wanted or default
    if name not in by_name:
        return CheckResult(
            "fail",
            "slurm partition",
            f"there is no partition {name!r}" if name else "the site has no default partition",
            f"set agent.slurm_partition to one of {', '.join(by_name)}",
        )

    available, limit = by_name[name]
    detail = f"{name} is {available}, walltime up to {limit}"
    if available == "up":
        return CheckResult("ok", "slurm partition", detail)

    return CheckResult("warn", "slurm partition", detail, "jobs wait until the site opens it")
