"""Construction of the Slurm runtime from its agent's settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.agent.runtimes.slurm.commands import Slurm
from moorage.agent.runtimes.slurm.folders import JobFolders
from moorage.agent.runtimes.slurm.job_options import JobDefaults
from moorage.agent.runtimes.slurm.runtime import SlurmRules, SlurmRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import Clock

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings


def work_directory(settings: AgentSettings, state: Path) -> Path:
    return Path(settings.slurm_work_dir) if settings.slurm_work_dir else state / "jobs"


def commands_of(settings: AgentSettings) -> Slurm:
    return Slurm(settings.slurm_commands, conf=settings.slurm_conf)


def defaults_of(settings: AgentSettings) -> JobDefaults:
    return JobDefaults(
        settings.slurm_partition,
        settings.slurm_account,
        qos=settings.slurm_qos,
        walltime_s=settings.slurm_walltime_s,
        options=settings.slurm_options,
    )


def slurm_runtime(
    settings: AgentSettings, state: Path, logs: LogStore, clock: Clock, *, identity: str
) -> SlurmRuntime:
    """The runtime. The site need not answer: its jobs are kept, and are found once it does."""
    rules = SlurmRules(
        max_jobs=settings.slurm_max_jobs,
        python=settings.slurm_python or sys.executable,
        address=settings.address,
        setup=settings.slurm_setup,
        defaults=defaults_of(settings),
        heartbeat_s=settings.slurm_heartbeat_timeout_s,
        poll_s=settings.slurm_poll_s,
        log_max_bytes=settings.log_max_bytes,
        log_keep_files=settings.log_keep_files,
    )
    folders = JobFolders(work_directory(settings, state), logs)
    return SlurmRuntime(commands_of(settings), folders, rules=rules, clock=clock, identity=identity)
