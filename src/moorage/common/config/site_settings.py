"""Settings of agents that submit jobs to a site: parts of the section ``agent``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class SlurmSettings(BaseModel):
    """For the runtime ``slurm``. A resource group of kind hpc overrides partition, account, QOS and
    walltime."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slurm_max_jobs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Most jobs of this agent that wait or run at the site at once."""
    slurm_work_dir: Annotated[str, Field(pattern=r"^(/.*)?$")] = ""
    """Directory for the files of jobs. Login node and compute nodes share it. Empty: ``jobs`` in
    the agent's state directory."""
    slurm_partition: str = ""
    """Partition of jobs. Empty: the default of the site."""
    slurm_account: str = ""
    """Account that jobs are billed to. Empty: the default of the user."""
    slurm_qos: str = ""
    """QOS of jobs. Empty: the default of the site."""
    slurm_walltime_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0
    """Walltime of jobs, rounded up to minutes. 0: the default of the partition."""
    slurm_options: tuple[str, ...] = ()
    """Further options of sbatch for all jobs, such as ``--reservation=NAME``."""
    slurm_setup: str = ""
    """Shell lines that run in each job before its program, such as ``module load CUDA/12.4``."""
    slurm_python: str = ""
    """Python 3.7 or later on the compute nodes, for the launcher of jobs. Empty: the agent's own,
    by its path."""
    slurm_commands: str = ""
    """Directory of sbatch, squeue, scancel and sinfo. Empty: those of PATH."""
    slurm_conf: Annotated[str, Field(pattern=r"^(/.*)?$")] = ""
    """Configuration file of Slurm (SLURM_CONF), for a login node of several clusters. Empty: the
    default of the node."""
    slurm_poll_s: Annotated[float, Field(ge=0.1, le=600)] = 10
    """Interval of squeue, one call for all jobs, in seconds."""
    slurm_heartbeat_timeout_s: Annotated[float, Field(ge=0)] = 1800
    """After how many seconds without a sign of this agent a job ends itself. 0: never."""


class HeappeSettings(BaseModel):
    """For the runtime ``heappe``. A resource group of kind hpc overrides project, cluster, node
    type, template and walltime, which are given by the names that the site uses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    heappe_url: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """Address of the HEAppE server, without the part ``/heappe``."""
    heappe_auth: Literal["api-key", "session", "bearer"] = "api-key"
    """``api-key``: name and password in a header of each call (HEAppE 6.2 and newer); ``session``:
    a login with both; ``bearer``: a token of the site's identity provider."""
    heappe_user: Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-. ]{0,50}$")] = ""
    """User name at HEAppE. Each agent needs its own, unless ``heappe_shared_account`` is set."""
    heappe_secret: Annotated[str | None, Field(max_length=16_000)] = None
    """Password, or the token for ``bearer``."""
    heappe_secret_file: Path | None = None
    """File that has it instead. It is read again once the site refuses the secret."""
    heappe_shared_account: bool = False
    """Other agents may have jobs under the same account. They share its tunnels and its session."""
    heappe_project: str = ""
    """Accounting string of the project."""
    heappe_cluster: str = ""
    """Cluster of jobs. Empty: the only one of the project."""
    heappe_node_type: str = ""
    """Node type of jobs. Empty: the only one that has the template."""
    heappe_template: str = ""
    """Command template that starts jobs; deploy/heappe has it. Empty: the only one of the node
    type."""
    heappe_walltime_s: Annotated[float, Field(ge=0, le=31_536_000)] = 0
    """Walltime of jobs. 0: the longest that the node type allows."""
    heappe_max_jobs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Most jobs of this agent that wait or run at the site at once. A HEAppE server has 100 tunnels
    for all its users, and each model takes one."""
    heappe_poll_s: Annotated[float, Field(ge=1, le=600)] = 40
    """Interval of the list of jobs, one call for all of them."""
    heappe_heartbeat_timeout_s: Annotated[float, Field(ge=0)] = 3600
    """After how many seconds without a request or a health check a job that serves ends itself. 0:
    never."""
    heappe_unreachable_timeout_s: Annotated[float, Field(ge=0, le=604_800)] = 1800
    """How long a job is kept whose engine cannot be reached through the site, while its walltime
    lasts. Longer than the restart of a login node takes. Then it is replaced. A job also waits so
    long to be submitted while the site does not answer."""


class CelerySettings(BaseModel):
    """For the runtime ``celery``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    celery_app: str = ""
    """Celery application whose tasks sessions of the runtime celery call, as of ``celery -A``."""
    celery_workdir: str = ""
    """Directory of that application, if it is not installed: it is added to the import path."""
    celery_python: str = ""
    """Interpreter that has Celery and what the application imports. Empty: that of the agent."""
